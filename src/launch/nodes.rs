//! The lists that Slurm writes: of nodes, and of how many tasks each has.

/// How many tasks the node of this number has, by a list such as `4(x2),3`.
pub(super) fn tasks_of(list: &str, node: usize) -> Option<usize> {
    let mut before = 0;
    for part in list.split(',') {
        let (tasks, nodes) = match part.trim().split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part.trim(), 1),
        };
        let tasks = tasks.parse().ok()?;
        before += nodes;
        if node < before {
            return Some(tasks);
        }
    }
    None
}

/// The first node of a list such as `gpu[003-005,9],login1`.
pub(super) fn first_of(list: &str) -> Option<String> {
    let list = list.trim();
    let end = end_of_first(list)?;
    let mut name = String::new();
    let mut rest = &list[..end];
    // Each bracket is a list of numbers and ranges, of which the first number counts, as it is written.
    while let Some(open) = rest.find('[') {
        let close = open + rest[open..].find(']')?;
        let first = rest[open + 1..close].split([',', '-']).next().filter(|first| !first.is_empty())?;
        name.push_str(&rest[..open]);
        name.push_str(first);
        rest = &rest[close + 1..];
    }
    name.push_str(rest);
    (!name.is_empty() && !name.contains(']')).then_some(name)
}

/// Where the first name ends: at the first comma outside of brackets.
fn end_of_first(list: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, char) in list.char_indices() {
        match char {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    (depth == 0).then_some(list.len())
}

/// The hosts of a list of SageMaker's: `["algo-1","algo-2"]`. `None` if it is no such list.
pub(super) fn of_sagemaker(list: &str) -> Option<Vec<String>> {
    let hosts = list.trim().strip_prefix('[')?.strip_suffix(']')?.split(',');
    let name = |host: &str| host.trim().strip_prefix('"')?.strip_suffix('"').map(ToOwned::to_owned);
    hosts.map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_counted_node_by_node() {
        for (list, all) in [("4", &[4][..]), ("4(x2),3", &[4, 4, 3]), ("1,2(x3)", &[1, 2, 2, 2]), (" 8 , 7 ", &[8, 7])]
        {
            let got: Vec<_> = (0..all.len() + 1).map(|node| tasks_of(list, node)).collect();
            let want: Vec<_> = all.iter().copied().map(Some).chain([None]).collect();
            assert_eq!(got, want, "{list}");
        }
        for nonsense in ["", "x", "4(x", "4(x2", "4(xx)", "(x2)", "-1"] {
            assert_eq!(tasks_of(nonsense, 0), None, "{nonsense:?}");
        }
    }

    #[test]
    fn the_first_node_is_the_first_name() {
        for (list, first) in [
            ("node1", "node1"),
            ("node1,node2", "node1"),
            ("gpu[003-005,9],login1", "gpu003"),
            ("gpu[7,3]", "gpu7"),
            ("rack[1-2]n[04-05]", "rack1n04"),
            ("a[1-2]-ib,b", "a1-ib"),
            (" n1 ", "n1"),
        ] {
            assert_eq!(first_of(list).as_deref(), Some(first), "{list}");
        }
        for nonsense in ["", "[", "a[", "a]", "a[]", "a[1-2", "]["] {
            assert_eq!(first_of(nonsense), None, "{nonsense:?}");
        }
    }
}
