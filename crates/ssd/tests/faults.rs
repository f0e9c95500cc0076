//! Rules for faults over the life of a device.

mod kept;

use std::sync::{Arc, Mutex};

use kept::{Kept, Problem, State};
use unvme_ssd::{FaultAction, FaultMatch, FaultRule, Ssd, SsdConfig, SsdError};

const BYTES: u64 = 16 << 20;

fn start(state: &State, faults: Vec<FaultRule>) -> Result<Arc<Ssd>, SsdError> {
    let store = Kept::new(BYTES, state, &Problem::default());
    Ssd::new(SsdConfig { faults, ..SsdConfig::block(BYTES, 512) }, store)
}

fn dropping(id: Option<u32>) -> FaultRule {
    let action = FaultAction { dropped: true, ..FaultAction::default() };
    FaultRule { id, matching: FaultMatch { after: 3, ..FaultMatch::default() }, action }
}

#[test]
fn rules_survive_the_process_and_those_of_the_configuration_do_not() {
    let state = Arc::default();
    let ssd = start(&state, vec![dropping(None)]).unwrap();
    assert_eq!(ssd.add_fault(dropping(Some(7))).unwrap(), 7);
    assert_eq!(ssd.add_passing_faults(vec![dropping(None), dropping(None)]).unwrap(), [2, 3]);
    assert_eq!(ssd.faults().len(), 4);
    // As a process that is killed: nothing is saved from here on.
    let killed = Arc::new(Mutex::new(state.lock().unwrap().clone()));
    drop(ssd);
    for state in [state, killed] {
        let ssd = start(&state, Vec::new()).unwrap();
        let listed = ssd.faults();
        assert_eq!(listed.len(), 1);
        assert_eq!((&listed[0].rule, listed[0].matched, listed[0].hits), (&dropping(Some(7)), 0, 0));
        assert_eq!(ssd.clear_faults(Some(7)), 1);
        drop(ssd);
        assert!(start(&state, Vec::new()).unwrap().faults().is_empty());
    }
}

#[test]
fn a_device_without_rules_saves_nothing_about_them() {
    let state: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    drop(start(&state, Vec::new()).unwrap());
    let saved = String::from_utf8(state.lock().unwrap().clone().unwrap()).unwrap();
    assert!(!saved.contains("faults"), "{saved}");
}

#[test]
fn wrong_rules_are_refused_wherever_they_come_from() {
    let nothing = FaultRule::default();
    let error = start(&Arc::default(), vec![nothing.clone()]).err().unwrap().to_string();
    assert!(error.starts_with("faults: act: nothing is not possible"), "{error}");
    let many = vec![dropping(None); 65];
    let error = start(&Arc::default(), many).err().unwrap().to_string();
    assert_eq!(error, "faults: 65 of them is not possible; expected at most 64");
    let ssd = start(&Arc::default(), Vec::new()).unwrap();
    assert!(ssd.add_fault(nothing).is_err());
    let mut rule = dropping(None);
    rule.matching.probability = Some(f64::NAN);
    assert!(ssd.add_fault(rule).is_err());
    assert!(ssd.faults().is_empty());
}

#[test]
fn a_saved_state_with_a_wrong_rule_names_it() {
    let state: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let ssd = start(&state, Vec::new()).unwrap();
    ssd.add_fault(dropping(None)).unwrap();
    drop(ssd);
    let saved = String::from_utf8(state.lock().unwrap().clone().unwrap()).unwrap();
    for (wrong, expected) in [
        (saved.replace("\"drop\"", "\"dropp\""), "`dropp` is not known here"),
        (saved.replace("\"after\": 3", "\"after\": -3"), "after: -3 is below 0"),
    ] {
        assert_ne!(wrong, saved);
        *state.lock().unwrap() = Some(wrong.into_bytes());
        let error = start(&state, Vec::new()).err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains("at line"), "{error}");
    }
}
