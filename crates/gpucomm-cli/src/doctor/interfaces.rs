//! The network interfaces of this host, in the order in which NCCL looks at them.

use std::ffi::{CStr, c_int};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    /// Up, and with a carrier: NCCL leaves others out.
    pub is_running: bool,
    pub is_loopback: bool,
    pub addresses: Vec<IpAddr>,
}

/// Those of this host; none where the system does not say.
pub fn all() -> Vec<Interface> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes the head of a list to the place given.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut all: Vec<Interface> = Vec::new();
    let mut at = list;
    // SAFETY: `at` is null or an entry of the list, which is alive until it is freed below.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: an entry has a name, which is a C string and as alive as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let index = all.iter().position(|one| one.name == name).unwrap_or_else(|| {
            let has = |flag: c_int| entry.ifa_flags & flag.cast_unsigned() != 0;
            let is_running = has(libc::IFF_UP) && has(libc::IFF_RUNNING);
            all.push(Interface { name, is_running, is_loopback: has(libc::IFF_LOOPBACK), addresses: Vec::new() });
            all.len() - 1
        });
        all[index].addresses.extend(address(entry));
    }
    // SAFETY: made by getifaddrs, and not used any more.
    unsafe { libc::freeifaddrs(list) };
    all
}

/// The address of an entry, if it is one of IP.
fn address(entry: &libc::ifaddrs) -> Option<IpAddr> {
    // SAFETY: an address of an entry is null, or has its family in front.
    let family = unsafe { entry.ifa_addr.as_ref() }?.sa_family;
    match c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: what is of this family has this layout, wherever it lies.
            let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(addr.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(addr.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn addresses_are_of_this_host() {
        let all = super::all();
        for interface in &all {
            assert!(!interface.name.is_empty());
            for address in &interface.addresses {
                assert!(interface.is_loopback || !address.is_loopback(), "{interface:?}");
            }
        }
        let names: std::collections::BTreeSet<_> = all.iter().map(|one| &one.name).collect();
        assert_eq!(names.len(), all.len(), "{all:?}");
    }
}
