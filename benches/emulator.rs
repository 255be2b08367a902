//! How long an all-reduce of the emulator takes, with ranks as threads and as processes.
//!
//! `cargo bench --features emulator --bench emulator -- [RANKS [BYTES...]]` prints the median and the least time of one out-of-place
//! f32 sum, measured like a barrier-separated `MPI_Allreduce`: from the enqueue until the stream is idle.

#[cfg(not(feature = "emulator"))]
fn main() {
    eprintln!("this bench measures the emulator: add --features emulator");
}

#[cfg(feature = "emulator")]
fn main() {
    bench::main();
}

#[cfg(feature = "emulator")]
mod bench {
    use gpucomm::sys::*;
    use std::ffi::{c_char, c_void};
    use std::process::Command;
    use std::time::{Duration, Instant};

    const SIZES: [usize; 5] = [8, 4096, 64 << 10, 2 << 20, 16 << 20];
    const ID: &str = "GPUCOMM_BENCH_ID";

    pub(crate) fn main() {
        let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
        if let Ok(id) = std::env::var(ID) {
            let number = |i: usize| arguments.get(i).and_then(|a| a.parse().ok()).expect("rank and size");
            return run(number(0), number(1), decode(&id), "process", &sizes(&arguments[2..]));
        }
        let ranks = arguments.first().map_or(2, |a| a.parse().expect("a number of ranks"));
        let asked = arguments.get(1..).unwrap_or_default();
        let sizes = &sizes(asked);
        let id = unique_id();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                scope.spawn(move || run(rank, ranks, id, "thread", sizes));
            }
        });
        let id = encode(&unique_id());
        let children: Vec<_> = (0..ranks)
            .map(|rank| {
                let mut command = Command::new(std::env::current_exe().expect("this program"));
                command.args([rank.to_string(), ranks.to_string()]).args(asked);
                command.env(ID, &id).spawn().expect("a process")
            })
            .collect();
        for mut child in children {
            assert!(child.wait().expect("the process ends").success());
        }
    }

    fn sizes(asked: &[String]) -> Vec<usize> {
        if asked.is_empty() {
            return SIZES.to_vec();
        }
        asked.iter().map(|a| a.parse().expect("a number of bytes")).collect()
    }

    fn unique_id() -> ncclUniqueId {
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: valid for a write.
        check(unsafe { ncclGetUniqueId(&mut id) });
        id
    }

    fn encode(id: &ncclUniqueId) -> String {
        id.internal.iter().map(|byte| format!("{:02x}", byte.cast_unsigned())).collect()
    }

    fn decode(text: &str) -> ncclUniqueId {
        let byte = |i: usize| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hexadecimal digits");
        ncclUniqueId { internal: std::array::from_fn(|i| byte(i) as c_char) }
    }

    fn check(result: ncclResult_t) {
        assert_eq!(result, ncclResult_t::ncclSuccess);
    }

    fn check_cuda(result: cudaError) {
        assert_eq!(result, cudaError::cudaSuccess);
    }

    fn wait(stream: cudaStream_t) {
        // SAFETY: the handle is valid.
        while unsafe { cudaStreamQuery(stream) } != cudaError::cudaSuccess {
            std::thread::yield_now();
        }
    }

    fn run(rank: usize, size: usize, id: ncclUniqueId, what: &str, sizes: &[usize]) {
        let largest = sizes.iter().copied().max().expect("a size");
        let (mut comm, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        let mut buffers = [std::ptr::null_mut::<c_void>(); 2];
        // SAFETY: all pointers are valid for writes; the buffers hold the largest size.
        unsafe {
            check_cuda(cudaSetDevice(rank as i32));
            check(ncclCommInitRankConfig(&mut comm, size as i32, id, rank as i32, std::ptr::null_mut()));
            check_cuda(cudaStreamCreateWithPriority(&mut stream, cudaStreamNonBlocking, 0));
            for buffer in &mut buffers {
                check_cuda(cudaMalloc(buffer, largest));
                check_cuda(cudaMemsetAsync(*buffer, 0, largest, stream));
            }
        }
        wait(stream);
        for &bytes in sizes {
            let rounds = if bytes >= 1 << 20 { 60 } else { 2000 };
            let reduce = |count: usize| {
                let (datatype, op) = (ncclDataType_t::ncclFloat32, ncclRedOp_t::ncclSum);
                // SAFETY: the buffers hold `count` floats until the stream is idle.
                check(unsafe { ncclAllReduce(buffers[0], buffers[1], count, datatype, op, comm, stream) });
            };
            let mut times: Vec<Duration> = (0..rounds + 5)
                .map(|_| {
                    reduce(1);
                    wait(stream);
                    let begin = Instant::now();
                    reduce(bytes / 4);
                    wait(stream);
                    begin.elapsed()
                })
                .skip(5)
                .collect();
            times.sort();
            let begin = Instant::now();
            (0..rounds).for_each(|_| reduce(bytes / 4));
            wait(stream);
            let queued = begin.elapsed() / rounds as u32;
            if rank == 0 {
                println!(
                    "{size} ranks, {what} each: {bytes:10} B   median {:9.1} us   least {:9.1} us   queued {:9.1} us",
                    times[rounds / 2].as_secs_f64() * 1e6,
                    times[0].as_secs_f64() * 1e6,
                    queued.as_secs_f64() * 1e6,
                );
            }
        }
        // SAFETY: the handle is valid.
        check(unsafe { ncclCommDestroy(comm) });
    }
}
