//! Any bytes are the log pages of Flexible Data Placement and the data of I/O Management. Reading them never
//! panics, never yields more than the bytes hold, and ends; configurations that were read are written and
//! read as the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use unvme_spec::fdp::{self, Configuration, Configurations, PlacementId, RUH_MAX, Rgif, RuhDescriptor};
use unvme_spec::identify::NamespaceCreate;
use zerocopy::FromBytes;

fuzz_target!(|data: &[u8]| {
    configurations(data);

    let usages = fdp::ruh_usages(data).map_or(0, Iterator::count);
    assert!(usages * size_of::<fdp::RuhUsage>() <= data.len());
    let statuses = fdp::ruh_statuses(data).map_or(0, Iterator::count);
    assert!(statuses * size_of::<fdp::RuhStatus>() <= data.len());
    assert_eq!(fdp::placement_ids(data).count(), data.len() / 2);

    let mut events = 0;
    for event in fdp::events(data).into_iter().flatten() {
        events += 1;
        let _ = (event.placement_id(), event.namespace(), event.location(), event.timestamp.milliseconds());
        let moved = event.media_reallocated().map(|moved| (moved.moved(), moved.first()));
        assert!(moved.is_none() || !event.event_type.is_host());
    }
    assert!(events * size_of::<fdp::Event>() <= data.len());

    if let Ok((create, _)) = NamespaceCreate::read_from_prefix(data) {
        let handles = create.phndl.get(..usize::from(create.nphndls));
        assert_eq!(handles.is_some(), usize::from(create.nphndls) <= RUH_MAX);
    }

    if let [bits, low, high, ..] = *data {
        let id = PlacementId(u16::from_le_bytes([low, high]));
        if let Some(format) = Rgif::new(bits) {
            let (group, handle) = format.split(id);
            assert_eq!(format.join(group, handle), Some(id));
        }
    }
});

fn configurations(data: &[u8]) {
    let Some(reader) = Configurations::new(data) else { return };
    let announced = reader.left() as usize;
    let read: Vec<Configuration<'_>> = reader.collect();
    let held: usize = read.iter().map(|configuration| size_of_val(configuration.handles)).sum();
    assert!(read.len() <= announced && held <= data.len());
    if read.is_empty() {
        return;
    }
    let bytes: Option<usize> = read.iter().map(|configuration| configuration.bytes().map(usize::from)).sum();
    let mut out = vec![0; bytes.unwrap_or(0) + 16];
    let Some(length) = fdp::write_configurations(&read, &mut out) else {
        // Descriptors of odd sizes can grow by their padding beyond what their size field holds.
        assert!(bytes.is_none());
        return;
    };
    assert_eq!(length, out.len());
    let handles = |read: Vec<Configuration<'_>>| -> Vec<Vec<RuhDescriptor>> {
        read.iter().map(|configuration| configuration.handles.to_vec()).collect()
    };
    let again = Configurations::new(&out).into_iter().flatten().collect();
    assert_eq!(handles(again), handles(read));
}
