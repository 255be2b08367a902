//! The network addresses of this host.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The addresses at which other hosts may reach this one, as they stand before the port of an address: those of all interfaces that are up, IPv4
/// first, without those that mean something on one host or one link only. None where the system does not say.
pub(super) fn addresses() -> Vec<String> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes the head of a list to the place given.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let (mut fours, mut sixes) = (Vec::new(), Vec::new());
    let mut at = list;
    // SAFETY: `at` is null or an entry of the list, which is alive until it is freed below.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let up = entry.ifa_flags & flag(libc::IFF_UP) != 0 && entry.ifa_flags & flag(libc::IFF_LOOPBACK) == 0;
        // SAFETY: an address of an entry is null, or has its family in front.
        let Some(family) = (unsafe { entry.ifa_addr.as_ref() }).filter(|_| up).map(|addr| addr.sa_family) else {
            continue;
        };
        if c_int::from(family) == libc::AF_INET {
            // SAFETY: what is of this family has this layout, wherever it lies.
            let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes());
            if !ip.is_link_local() {
                fours.push(ip.to_string());
            }
        } else if c_int::from(family) == libc::AF_INET6 {
            // SAFETY: as above.
            let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(addr.sin6_addr.s6_addr);
            if !ip.is_unicast_link_local() {
                sixes.push(format!("[{ip}]"));
            }
        }
    }
    // SAFETY: made by getifaddrs, and not used any more.
    unsafe { libc::freeifaddrs(list) };
    fours.extend(sixes);
    fours
}

/// A flag as entries have it.
fn flag(flag: c_int) -> u32 {
    flag.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    #[test]
    fn what_is_listed_is_an_address_of_this_host_that_is_not_its_alone() {
        for host in super::addresses() {
            let address: SocketAddr = format!("{host}:0").parse().unwrap();
            assert!(!address.ip().is_loopback(), "{address}");
            // Only an address of this host can be listened at.
            std::net::TcpListener::bind(address).unwrap();
        }
        assert!("127.0.0.1".parse::<IpAddr>().unwrap().is_loopback());
    }
}
