//! PEs as processes: this test program starts itself again, for a scene that all PEs play.

mod memory;
mod mistakes;
mod rma;
mod teams;

use std::ffi::c_void;
use std::process::{Child, Command, Output, Stdio};
use std::ptr::null_mut;

use crate::sys::*;

const SCENE: &str = "GPUCOMM_TEST_SCENE";
const ID: &str = "GPUCOMM_TEST_ID";
const PE: &str = "GPUCOMM_TEST_PE";
const SIZE: &str = "GPUCOMM_TEST_SIZE";

/// What a PE prints when it has come to the end of its scene.
const DONE: &str = "the scene was played";

/// What PEs play.
type Scene = fn(&Stage);

/// The scenes, by their names.
fn scene_named(name: &str) -> Scene {
    let all: &[&[(&str, Scene)]] = &[memory::SCENES, rma::SCENES, teams::SCENES, mistakes::SCENES];
    all.iter().flat_map(|scenes| scenes.iter()).find(|(other, _)| *other == name).expect("a scene of that name").1
}

/// A PE that plays, with a device and a stream.
pub(super) struct Stage {
    pub(super) me: usize,
    pub(super) size: usize,
    pub(super) stream: cudaStream_t,
}

fn start(scene: &str, size: usize, pe: usize, id: &str, env: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nvshmem::tests::scene", "--ignored", "--nocapture"])
        .envs([("GPUCOMM_EMULATOR_STRICT", "1"), ("GPUCOMM_EMULATOR_DEADLOCK", "5"), (SCENE, scene), (ID, id)])
        .envs([(PE, pe.to_string()), (SIZE, size.to_string())])
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn unique_id() -> nvshmemx_uniqueid_t {
    let mut id = std::mem::MaybeUninit::uninit();
    // SAFETY: a place for an id.
    unsafe {
        gpucommNvshmemUniqueIdInit(id.as_mut_ptr());
        assert_eq!(nvshmemx_get_uniqueid(id.as_mut_ptr()), 0);
        id.assume_init()
    }
}

fn hex(id: &nvshmemx_uniqueid_t) -> String {
    id.internal.iter().map(|byte| format!("{:02x}", byte.cast_unsigned())).collect()
}

/// Plays a scene with so many PEs: what each has printed.
pub(super) fn play(scene: &str, size: usize, env: &[(&str, &str)]) -> Vec<Output> {
    let id = hex(&unique_id());
    let children: Vec<Child> = (0..size).map(|pe| start(scene, size, pe, &id, env)).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

/// The same; all must come to the end.
pub(super) fn play_well(scene: &str, size: usize, env: &[(&str, &str)]) -> Vec<Output> {
    let outputs = play(scene, size, env);
    for (pe, output) in outputs.iter().enumerate() {
        let well = output.status.success() && String::from_utf8_lossy(&output.stdout).contains(DONE);
        assert!(well, "PE {pe} of {size}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    outputs
}

#[test]
#[ignore = "a PE, which other tests start"]
fn scene() {
    let Some(name) = std::env::var_os(SCENE) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<usize>().unwrap();
    let (me, size) = (number(PE), number(SIZE));
    let text = std::env::var(ID).unwrap();
    let mut id = std::mem::MaybeUninit::uninit();
    // SAFETY: a place for an id.
    let mut id = unsafe {
        gpucommNvshmemUniqueIdInit(id.as_mut_ptr());
        id.assume_init()
    };
    for (at, byte) in id.internal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap().cast_signed();
    }
    let play = scene_named(name.to_str().unwrap());
    // SAFETY: what these functions ask for: places of their own, that live as long.
    unsafe {
        let device = if std::env::var_os("SHARED").is_some() { 0 } else { me as i32 };
        assert_eq!(begin(me, size, &mut id, device), 0);
        let mut stream = null_mut();
        assert_eq!(cudaStreamCreateWithPriority(&mut stream, cudaStreamNonBlocking, 0), cudaError::cudaSuccess);
        let stage = Stage { me, size, stream };
        play(&stage);
        stage.sync();
        nvshmemx_hostlib_finalize();
        assert_eq!(nvshmemx_init_status(), NVSHMEM_STATUS_NOT_INITIALIZED);
    }
    println!("{DONE}");
}

/// Starts a PE.
///
/// # Safety
/// None is started.
pub(super) unsafe fn begin(me: usize, size: usize, id: &mut nvshmemx_uniqueid_t, device: i32) -> i32 {
    let mut attr = std::mem::MaybeUninit::uninit();
    // SAFETY: a place for an attribute, and an id that lives as long.
    unsafe {
        gpucommNvshmemAttrInit(attr.as_mut_ptr());
        let mut attr = attr.assume_init();
        assert_eq!(nvshmemx_set_attr_uniqueid_args(me as i32, size as i32, id, &mut attr), 0);
        attr.args.cuda_device_id = device;
        nvshmemx_hostlib_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &mut attr)
    }
}

impl Stage {
    /// Waits for the stream.
    pub(super) fn sync(&self) {
        // SAFETY: the stream is one.
        while unsafe { cudaStreamQuery(self.stream) } == cudaError::cudaErrorNotReady {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    /// So many words of symmetric memory, which hold `value`.
    pub(super) fn words(&self, count: usize, value: u64) -> *mut u64 {
        // SAFETY: all PEs allocate alike.
        let memory = unsafe { nvshmem_malloc(8 * count) }.cast::<u64>();
        assert!(!memory.is_null());
        self.fill(memory, &vec![value; count]);
        self.barrier();
        memory
    }

    /// Writes words into memory of this PE.
    pub(super) fn fill(&self, memory: *mut u64, values: &[u64]) {
        let bytes = size_of_val(values);
        let kind = cudaMemcpyKind::cudaMemcpyHostToDevice;
        // SAFETY: the memory has as many words.
        let copied =
            unsafe { cudaMemcpyAsync(memory.cast(), values.as_ptr().cast::<c_void>(), bytes, kind, self.stream) };
        assert_eq!(copied, cudaError::cudaSuccess);
        self.sync();
    }

    /// Words that lie in memory of this PE.
    pub(super) fn read(&self, memory: *const u64, count: usize) -> Vec<u64> {
        let mut values = vec![0u64; count];
        let kind = cudaMemcpyKind::cudaMemcpyDeviceToHost;
        // SAFETY: the memory has as many words, and so has the vector.
        let copied = unsafe {
            cudaMemcpyAsync(values.as_mut_ptr().cast::<c_void>(), memory.cast(), 8 * count, kind, self.stream)
        };
        assert_eq!(copied, cudaError::cudaSuccess);
        self.sync();
        values
    }

    pub(super) fn barrier(&self) {
        // SAFETY: NVSHMEM is started.
        unsafe { nvshmem_barrier_all() };
    }

    /// The PE after this one.
    pub(super) fn next(&self) -> usize {
        (self.me + 1) % self.size
    }

    /// The PE before this one.
    pub(super) fn previous(&self) -> usize {
        (self.me + self.size - 1) % self.size
    }
}
