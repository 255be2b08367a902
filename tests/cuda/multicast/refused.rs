//! What the driver refuses, step by step: each reason is told apart, and says what to do.

use std::time::Duration;

use gpucomm::cuda::multicast::{Mapped, Multicast, Refusal};
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{CudaCode, Error, Result};

use super::{GRAIN, devices, emulated};
use crate::child::child;

/// All steps, for two devices.
fn all_steps() -> Result<Multicast<Mapped>> {
    let complete = Multicast::single_process(&devices(2), GRAIN)?;
    let memory = devices(2).into_iter().map(|device| PhysicalMemory::new(device, GRAIN)).collect::<Result<Vec<_>>>()?;
    complete.bind_all(&memory)?.map()
}

#[track_caller]
fn assert_refused<T>(result: Result<T>, function: &str, wanted: Refusal) {
    match result {
        Err(Error::Multicast { operation, why, .. }) if why == wanted && operation == function => {}
        Err(error) => panic!("expected {wanted:?} of {function}, got {error:?}"),
        Ok(_) => panic!("expected {wanted:?} of {function}, it went well"),
    }
}

/// What is refused with each of these settings, by which function, and why.
const CASES: &[(&str, &str, Refusal)] = &[
    ("create=47", "cuMulticastCreate", Refusal::ResourcesExhausted),
    ("create=401", "cuMulticastCreate", Refusal::FabricState),
    ("create=801", "cuMulticastCreate", Refusal::NotSupported),
    ("create=802", "cuMulticastCreate", Refusal::NotReady),
    ("create=2", "cuMulticastCreate", Refusal::OutOfMemory),
    ("add=401@2", "cuMulticastAddDevice", Refusal::FabricState),
    ("add=1", "cuMulticastAddDevice", Refusal::NotConnected),
    ("add=101@2", "cuMulticastAddDevice", Refusal::NotConnected),
    ("add=802", "cuMulticastAddDevice", Refusal::NotReady),
    ("bind=2@2", "cuMulticastBindMem", Refusal::OutOfMemory),
    ("bind=401", "cuMulticastBindMem", Refusal::FabricState),
    ("bind=802", "cuMulticastBindMem", Refusal::NotReady),
    ("map=401@2", "cuMemMap", Refusal::FabricState),
    ("map=2", "cuMemMap", Refusal::OutOfMemory),
    ("map=802", "cuMemMap", Refusal::NotReady),
];

#[test]
fn each_step() {
    const NAME: &str = "multicast::refused::each_step";
    if !emulated() {
        return;
    }
    // One process for each: all of them at once.
    if let Ok(case) = std::env::var("GPUCOMM_TEST_CASE") {
        let (_, function, why) = CASES[case.parse::<usize>().unwrap()];
        let free = devices(2)[1].memory_info().unwrap().free;
        assert_refused(all_steps(), function, why);
        // Nothing is left of it, when a thread has taken it down.
        let start = std::time::Instant::now();
        while devices(2)[1].memory_info().unwrap().free != free {
            assert!(start.elapsed() < crate::LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
        std::process::exit(0);
    }
    std::thread::scope(|scope| {
        let run = |at: usize| {
            let (rules, case) = (CASES[at].0, at.to_string());
            let environment = [("GPUCOMM_EMULATOR_MULTICAST", rules), ("GPUCOMM_TEST_CASE", &case)];
            child(NAME, &environment, || ()).assert_success();
        };
        let start = |worker: usize| scope.spawn(move || (worker..CASES.len()).step_by(3).for_each(run));
        let workers: Vec<_> = (0..3).map(start).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// What is there after a while is waited for.
#[test]
fn a_system_that_becomes_ready() {
    const NAME: &str = "multicast::refused::a_system_that_becomes_ready";
    if !emulated() {
        return;
    }
    let rules = "create=802*2,add=802*3,bind=802*1,map=802*2";
    child(NAME, &[("GPUCOMM_EMULATOR_MULTICAST", rules)], || {
        all_steps().unwrap().close().unwrap();
        Multicast::probe(&devices(3)).unwrap();
    })
    .assert_success();
}

#[test]
fn a_wait_for_the_system_is_bounded() {
    const NAME: &str = "multicast::refused::a_wait_for_the_system_is_bounded";
    if !emulated() {
        return;
    }
    child(NAME, &[("GPUCOMM_EMULATOR_MULTICAST", "add=802")], || {
        let properties = gpucomm::cuda::multicast::ObjectProperties::new(2, GRAIN);
        let building = Multicast::create(&properties).unwrap();
        let start = std::time::Instant::now();
        let mut building = building.with_timeout(Duration::from_millis(50));
        assert_refused(building.add(devices(1)[0]), "cuMulticastAddDevice", Refusal::NotReady);
        // All attempts would take more than twice as long.
        assert!(start.elapsed() < Duration::from_millis(600), "{:?}", start.elapsed());
    })
    .assert_success();
}

#[test]
fn drivers_and_devices_without() {
    const NAME: &str = "multicast::refused::drivers_and_devices_without";
    if !emulated() {
        return;
    }
    let run = |environment: &[(&str, &str)], why: Refusal| {
        child(NAME, environment, || {
            let all = gpucomm::Device::all().unwrap();
            assert_eq!(Multicast::why_not(&all).unwrap(), Some(why));
            assert!(!Multicast::supported(&all).unwrap());
            let Err(Error::Multicast { why: got, .. }) = Multicast::probe(&all) else { panic!("it went well") };
            assert_eq!(got, why);
            let steps = gpucomm::cuda::multicast::ObjectProperties::new(2, GRAIN).granularity();
            assert!(matches!(steps, Err(Error::Multicast { why: got, .. }) if got == why), "{steps:?}");
        })
        .assert_success();
    };
    // Within the child, the case is known by its environment.
    if crate::child::is_child(NAME) {
        let old = std::env::var("GPUCOMM_EMULATOR_MULTICAST").is_ok_and(|value| value == "old-driver");
        run(&[], if old { Refusal::DriverTooOld } else { Refusal::NotSupported });
    }
    run(&[("GPUCOMM_EMULATOR_MULTICAST", "old-driver")], Refusal::DriverTooOld);
    run(&[("GPUCOMM_EMULATOR_MULTICAST", "unsupported")], Refusal::NotSupported);
    run(&[("GPUCOMM_EMULATOR_DEVICES", "1")], Refusal::NotSupported);
}

/// What is refused at the end is told, and everything else is done: what could not be unbound stays, as it may be written to.
#[test]
fn an_end_that_is_refused() {
    const NAME: &str = "multicast::refused::an_end_that_is_refused";
    if !emulated() {
        return;
    }
    child(NAME, &[("GPUCOMM_EMULATOR_MULTICAST", "unbind=1@2")], || {
        let free = || devices(2).into_iter().map(|device| device.memory_info().unwrap().free).collect::<Vec<_>>();
        let before = free();
        let error = all_steps().unwrap().close().unwrap_err();
        assert!(matches!(error, Error::Cuda { operation: "cuMulticastUnbind", code: CudaCode(1), .. }), "{error}");
        let after = free();
        assert_eq!(before.iter().sum::<usize>() - after.iter().sum::<usize>(), GRAIN);
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before == after).count(), 1);
        // A code that has no meaning of its own.
        all_steps().unwrap().close().unwrap();
        assert_eq!(free(), after);
    })
    .assert_success();
}

#[test]
fn each_reason_says_what_to_do() {
    let all = [
        Refusal::DriverTooOld,
        Refusal::NotSupported,
        Refusal::NotConnected,
        Refusal::FabricState,
        Refusal::ResourcesExhausted,
        Refusal::OutOfMemory,
        Refusal::NotReady,
        Refusal::NotShareable,
        Refusal::Peer,
    ];
    let texts: std::collections::HashSet<_> = all.iter().map(Refusal::to_string).collect();
    assert_eq!(texts.len(), all.len());
    assert!(all.iter().all(|why| why.to_string().ends_with(why.advice())));
    assert!(Refusal::DriverTooOld.advice().contains("libcudart 12.1"));
    assert!(Refusal::NotConnected.advice().contains("by one rank only"));
}
