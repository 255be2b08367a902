//! Who is in which team, computed without the library.

/// Members of a strided split, by their numbers among all.
pub fn strided(parent: &[usize], start: usize, stride: usize, size: usize) -> Vec<usize> {
    (0..size).map(|at| parent[start + at * stride]).collect()
}

/// The row and the column of each place of a parent.
pub fn plane(parent: &[usize], wide: usize) -> (Vec<Vec<usize>>, Vec<Vec<usize>>) {
    let rows = parent.chunks(wide).map(<[usize]>::to_vec).collect();
    let columns = (0..wide.min(parent.len())).map(|at| parent.iter().skip(at).step_by(wide).copied().collect());
    (rows, columns.collect())
}
