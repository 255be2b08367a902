//! Lists of interfaces and devices, as `NCCL_SOCKET_IFNAME` and `NCCL_IB_HCA` have them.

/// `eth,ib`: names that begin so. `=eth0`: exactly these. `^docker`: all others, and `^=docker0` all but exactly that. A device may have its
/// port behind it: `mlx5_0:1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    is_exact: bool,
    is_not: bool,
    names: Vec<(String, Option<u32>)>,
}

impl List {
    pub fn parse(text: &str) -> Self {
        let (is_not, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (is_exact, text) = text.strip_prefix('=').map_or((false, text), |rest| (true, rest));
        let entries = text.split(',').map(|entry| entry.split_once(':').unwrap_or((entry, "")));
        let names = entries.filter(|(name, _)| !name.is_empty());
        Self { is_exact, is_not, names: names.map(|(name, port)| (name.to_owned(), port.parse().ok())).collect() }
    }

    /// Whether the list is for this name, and this port where it is of a device. An empty list is for all.
    pub fn takes(&self, name: &str, port: Option<u32>) -> bool {
        let is_of = |(listed, of): &(String, Option<u32>)| {
            let is_named = if self.is_exact { name == listed } else { name.starts_with(listed.as_str()) };
            is_named && (of.is_none() || port.is_none() || *of == port)
        };
        (self.names.is_empty() || self.names.iter().any(is_of)) != self.is_not
    }
}

#[cfg(test)]
mod tests {
    use super::List;

    #[test]
    fn the_grammar() {
        let taken = |list: &str| {
            let list = List::parse(list);
            ["eth0", "eth1", "eth10", "ib0", "docker0"]
                .into_iter()
                .filter(|name| list.takes(name, None))
                .collect::<Vec<_>>()
        };
        assert_eq!(taken("eth"), ["eth0", "eth1", "eth10"]);
        assert_eq!(taken("eth1"), ["eth1", "eth10"]);
        assert_eq!(taken("=eth1"), ["eth1"]);
        assert_eq!(taken("=eth1,ib0"), ["eth1", "ib0"]);
        assert_eq!(taken("^eth1,docker"), ["eth0", "ib0"]);
        assert_eq!(taken("^=eth1"), ["eth0", "eth10", "ib0", "docker0"]);
        assert_eq!(taken(",ib,"), ["ib0"]);
        assert_eq!(taken("ens"), [""; 0]);
        assert_eq!(taken("^"), [""; 0]);
        let list = List::parse("mlx5_0:1,mlx5_1");
        assert!(list.takes("mlx5_0", Some(1)) && !list.takes("mlx5_0", Some(2)) && list.takes("mlx5_1", Some(2)));
    }
}
