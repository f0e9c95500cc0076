//! Any text as rules for faults: they are refused with a place in the text, or they are rules that can be
//! written down and read again, and that a device takes.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use unvme_ssd::{MemoryStore, Ssd, SsdConfig, parse_faults};

const MEDIA_BYTES: u64 = 2 << 20;

thread_local! {
    static SSD: Arc<Ssd> = {
        let store = MemoryStore::new(MEDIA_BYTES).expect("memory");
        Ssd::new(SsdConfig::block(MEDIA_BYTES, 512), Box::new(store)).expect("a device")
    };
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let rules = match parse_faults(text) {
        Ok(rules) => rules,
        Err(error) => {
            assert!(error.place().is_some() || text.len() > 1 << 20, "{error}");
            assert!(!error.reason().is_empty());
            return;
        }
    };
    for rule in &rules {
        let written = rule.to_string();
        assert_eq!(parse_faults(&written).as_deref(), Ok(std::slice::from_ref(rule)), "{written}");
    }
    SSD.with(|ssd| {
        for rule in &rules {
            // A number may be there twice.
            if let Ok(id) = ssd.add_fault(rule.clone()) {
                assert!(ssd.faults().iter().any(|report| report.rule.id == Some(id)));
            }
        }
        ssd.clear_faults(None);
        assert!(ssd.faults().is_empty());
    });
});
