//! A process that can start no more threads, as one at its limit cannot.

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

/// Has every attempt of this process to start a thread fail from now on, with `EAGAIN`; false where the kernel does not let us.
///
/// A limit on the number of processes would not do: it does not bind root, and counts what else runs.
pub fn forbid_threads() -> bool {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EAGAIN.unsigned_abs();
    let step = |code: u32, jt, jf, k| sock_filter { code: u16::try_from(code).expect("a code"), jt, jf, k };
    let number = |number: libc::c_long| u32::try_from(number).expect("the number of a system call");
    let mut steps = [
        // The number of the system call.
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, number(libc::SYS_clone)),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, number(libc::SYS_clone3)),
        step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(BPF_RET | BPF_K, 0, 0, refuse),
    ];
    let program = sock_fprog { len: u16::try_from(steps.len()).expect("a length"), filter: steps.as_mut_ptr() };
    // SAFETY: takes integers.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: reads the program, which outlives the call.
    let filtered = unsafe {
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    bound == 0 && filtered == 0 && std::thread::Builder::new().spawn(|| ()).is_err()
}
