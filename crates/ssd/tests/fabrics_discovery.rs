//! The discovery controller (Base 3.1.3.3, 5.1.12.3).

mod network;

use std::sync::Arc;
use std::time::Duration;

use network::{
    DISCOVERY, HOST, Line, PORT, SUBSYSTEM, TRANSPORT, blocks, connect, connect_data, pairs, port, sqe,
    target,
};
use unvme_bus::EventFd;
use unvme_spec::{Sqe, Status};
use unvme_ssd::fabrics::{
    Access, AddressFamily, Begun, EndReason, HostAccess, PortId, PortOptions, QueueState, Referral, Target,
    TargetOptions,
};

fn discovery(target: &Arc<Target>, host: &str, kato_ms: u32) -> Line {
    let mut line = Line::new(target);
    line.send(connect(0, 31, 0, kato_ms), &connect_data(DISCOVERY, host, 0xffff)).ok();
    line.enable();
    line
}

/// Get Log Page 70h: `bytes` from `offset` on.
fn log(offset: u32, bytes: u32) -> Sqe {
    Sqe { cdw10: (bytes / 4 - 1) << 16 | 0x70, cdw12: offset, ..sqe(0x02, 0) }
}

/// SUBTYPE, SUBNQN, TRADDR of each record.
fn records(page: &[u8]) -> Vec<(u8, String, String)> {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| matches!(byte, 0 | b' ')).unwrap_or(bytes.len());
        String::from_utf8(bytes[..end].to_vec()).expect("text")
    };
    let count = u64::from_le_bytes(page[8..16].try_into().unwrap()) as usize;
    let record = |record: &[u8]| (record[2], text(&record[256..512]), text(&record[512..768]));
    page[1024..].chunks(1024).take(count).map(record).collect()
}

#[test]
fn a_record_has_what_a_host_needs_to_connect() {
    let target = target(blocks());
    let mut line = discovery(&target, HOST, 0);
    let page = line.receive(log(0, 4096), 4096).ok();
    // GENCTR: a subsystem and a port were added. NUMREC: the subsystem, and the discovery service itself.
    assert_eq!(&page[..18], [2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let record = &page[1024..2048];
    // TRTYPE TCP, ADRFAM IPv4, SUBTYPE NVM, TREQ, PORTID 1, CNTLID, ASQSZ, EFLAGS.
    assert_eq!(&record[..12], [3, 1, 2, 6, 1, 0, 0xff, 0xff, 128, 0, 0, 0]);
    assert_eq!(&record[32..40], b"4420    ");
    assert_eq!(&record[256..256 + SUBSYSTEM.len()], SUBSYSTEM.as_bytes());
    assert_eq!(&record[512..522], b"192.0.2.1 ");
    assert_eq!(record[768], 0, "SECTYPE");
    assert_eq!((page[2048 + 2], page[2048 + 10]), (3, 2), "this discovery service, which can be stayed at");
}

#[test]
fn the_log_is_read_in_pieces_and_shows_what_there_is_for_the_host() {
    let target = target(blocks());
    let other = Access::Hosts(vec![HostAccess { nqn: "nqn.other".into(), ..HostAccess::default() }]);
    target.add_subsystem("nqn.2026-01.example:hidden", pairs(), other).expect("a subsystem");
    let second = PortOptions {
        family: AddressFamily::Ipv6,
        address: "2001:db8::1".into(),
        is_secure: true,
        ..port(PortId(2))
    };
    target.add_port(second).expect("a port");
    let far = PortOptions { address: "198.51.100.7".into(), ..port(PortId(9)) };
    target.add_referral(Referral { port: far, nqn: String::new() }).expect("a referral");
    let mut line = discovery(&target, HOST, 0);
    let whole = line.receive(log(0, 16384), 16384).ok();
    let here = |subtype, nqn: &str, address: &str| (subtype, nqn.to_owned(), address.to_owned());
    assert_eq!(
        records(&whole),
        [
            here(2, SUBSYSTEM, "192.0.2.1"),
            here(3, DISCOVERY, "192.0.2.1"),
            here(2, SUBSYSTEM, "2001:db8::1"),
            here(3, DISCOVERY, "2001:db8::1"),
            here(1, DISCOVERY, "198.51.100.7"),
        ]
    );
    assert_eq!((whole[3 * 1024 + 1], whole[3 * 1024 + 3], whole[3 * 1024 + 768]), (2, 5, 2), "IPv6 with TLS");
    assert_eq!(line.receive(log(1024, 1024), 1024).ok(), whole[1024..2048]);
    assert_eq!(line.receive(log(1 << 20, 1024), 1024).status(), Status::INVALID_FIELD);
    assert_eq!(records(&discovery(&target, "nqn.other", 0).receive(log(0, 8192), 8192).ok()).len(), 7);
}

#[test]
fn a_change_is_an_event_for_hosts_that_have_asked_for_it() {
    let target = target(blocks());
    let wake = EventFd::new().expect("an eventfd");
    let mut line = Line::new(&target);
    line.queue.set_wake(wake.clone());
    line.send(connect(0, 31, 0, 0), &connect_data(DISCOVERY, HOST, 0xffff)).ok();
    line.enable();
    line.plain(Sqe { cdw10: 0x0b, cdw11: 1 << 31, ..sqe(0x09, 0) }).ok();
    assert_eq!(line.plain(Sqe { cdw10: 0x0b, ..sqe(0x0a, 0) }).result(), 1 << 31);
    let (request, begun) = line.begin(sqe(0x0c, 0), TRANSPORT, 0);
    assert!(matches!(begun, Begun::Run(_)));
    line.poll();
    assert!(line.finished.is_empty());
    target.add_port(port(PortId(2))).expect("a port");
    assert!(wake.drain());
    assert_eq!(line.wait_for(request).result(), 0x0070_f002);
    // Until the log page has been read there is no other one.
    let (request, _) = line.begin(sqe(0x0c, 0), TRANSPORT, 0);
    target.add_port(port(PortId(3))).expect("a port");
    line.poll();
    assert!(line.finished.is_empty());
    line.receive(log(0, 1024), 1024).ok();
    target.add_port(port(PortId(4))).expect("a port");
    assert_eq!(line.wait_for(request).result(), 0x0070_f002);
}

#[test]
fn it_says_that_it_is_a_discovery_controller_and_does_nothing_else() {
    let target = target(blocks());
    let mut line = discovery(&target, HOST, 0);
    let page = line.identify(1, 0);
    assert_eq!((page[111], &page[92..96]), (2, &[0, 0, 0, 0x80][..]), "CNTRLTYPE, OAES");
    assert_eq!(page[77], 5, "MDTS");
    assert_eq!(line.property(0, 1) & 0xffff, 127, "CAP.MQES");
    assert_eq!(&page[768..768 + DISCOVERY.len()], DISCOVERY.as_bytes());
    assert_eq!((&page[320..322], &page[514..516]), (&[1, 0][..], &[128, 0][..]), "KAS, MAXCMD");
    assert_eq!(line.receive(Sqe { cdw10: 2, ..sqe(0x06, 0) }, 4096).status(), Status::INVALID_FIELD);
    assert_eq!(
        line.receive(Sqe { cdw10: 0x7f_0002, ..sqe(0x02, 0) }, 512).status(),
        Status::INVALID_LOG_PAGE
    );
    assert_eq!(line.plain(sqe(0x80, 1)).status(), Status::INVALID_OPCODE);
    let io = Line::new(&target).send(connect(1, 31, 0, 0), &connect_data(DISCOVERY, HOST, 0xffff));
    assert_eq!((io.status(), io.cqe.dw0), (Status::new(1, 0x82), 42));
    let sized =
        |entries| Line::new(&target).send(connect(0, entries, 0, 0), &connect_data(DISCOVERY, HOST, 0xffff));
    assert_eq!((sized(128).status(), sized(128).cqe.dw0), (Status::new(1, 0x82), 44), "SQSIZE");
    sized(127).ok();
    let requests: Vec<_> = (0..4).map(|_| line.begin(sqe(0x0c, 0), TRANSPORT, 0).0).collect();
    assert_eq!(line.plain(sqe(0x0c, 0)).status(), Status::AER_LIMIT_EXCEEDED);
    assert_eq!(line.plain(Sqe { cdw10: u32::from(requests[1]) << 16, ..sqe(0x08, 0) }).result(), 0);
    assert_eq!(line.wait_for(requests[1]).status(), Status::ABORT_REQUESTED);
}

#[test]
fn a_host_that_stays_is_dropped_when_it_is_silent() {
    let target = target(blocks());
    let mut line = discovery(&target, HOST, 30_000);
    line.clock.advance(Duration::from_secs(29));
    line.plain(sqe(0x18, 0)).ok();
    line.clock.advance(Duration::from_secs(29));
    line.poll();
    assert_eq!(line.queue.next_event(), Some(59_000_000_000));
    line.clock.advance(Duration::from_secs(1));
    line.poll();
    assert_eq!(line.queue.state(), QueueState::Ended(EndReason::KeepAlive));
    let _ = PORT;
}

#[test]
fn a_host_without_a_keep_alive_timer_is_dropped_after_two_minutes_of_silence() {
    let target = target(blocks());
    let mut line = discovery(&target, HOST, 0);
    line.clock.advance(Duration::from_secs(119));
    line.receive(log(0, 1024), 1024).ok();
    line.clock.advance(Duration::from_secs(119));
    line.poll();
    assert_eq!(line.queue.state(), QueueState::Connected);
    assert_eq!(line.queue.next_event(), Some(239_000_000_000));
    line.clock.advance(Duration::from_secs(1));
    line.poll();
    assert_eq!(line.queue.state(), QueueState::Ended(EndReason::KeepAlive));
}

#[test]
fn any_host_may_ask_and_none_of_them_takes_much_memory() {
    const KIB: u32 = 1 << 10;
    let target = target(blocks());
    let mut line = discovery(&target, "nqn.2026-01.example:stranger", 0);
    for bytes in [129 * KIB, 256 << 20] {
        let refused = line.run(log(0, 4096), TRANSPORT, bytes, &[]);
        assert_eq!(refused.status(), Status::INVALID_FIELD, "{bytes} bytes");
    }
    let begun: Vec<_> = (0..30).map(|_| line.begin(log(0, 4096), TRANSPORT, 128 * KIB)).collect();
    assert!(matches!(begun[0].1, Begun::Run(_)));
    assert!(begun[1..].iter().all(|(_, begun)| matches!(begun, Begun::Waits(_))), "{begun:?}");
    for _ in 0..3 {
        line.poll();
    }
    assert_eq!(line.finished.len(), 1);
    assert!(target.memory().used() <= 512 << 10, "{} bytes", target.memory().used());
    let expected = line.wait_for(begun[0].0).ok();
    for (cid, _) in &begun[1..] {
        assert_eq!(line.queue.next_event(), Some(0), "there is room for the next one");
        assert_eq!(line.wait_for(*cid).ok(), expected);
    }
    assert_eq!(records(&expected).len(), 2);
}

#[test]
fn a_port_at_all_addresses_is_where_the_host_has_reached_it_and_of_the_family_of_that() {
    let target = Target::new(TargetOptions::default());
    let open =
        |id, family, address: &str| PortOptions { family, address: address.into(), ..port(PortId(id)) };
    for port in [
        open(1, AddressFamily::Ipv4, "0.0.0.0"),
        open(2, AddressFamily::Ipv6, "::"),
        open(3, AddressFamily::Ipv4, "198.51.100.3"),
    ] {
        target.add_port(port).expect("a port");
    }
    let seen = |port, local| {
        let mut line = Line::reached_at(&target, PortId(port), local);
        line.send(connect(0, 31, 0, 0), &connect_data(DISCOVERY, HOST, 0xffff)).ok();
        line.enable();
        let page = line.receive(log(0, 8192), 8192).ok();
        let families = page[1024..].chunks(1024).map(|record| record[1]);
        let addresses = records(&page).into_iter().map(|(_, _, address)| address);
        families.zip(addresses).collect::<Vec<_>>()
    };
    let fixed = (1, "198.51.100.3".to_owned());
    // ADRFAM is 1 for IPv4, 2 for IPv6.
    assert_eq!(seen(1, "192.0.2.9"), [(1, "192.0.2.9".to_owned()), fixed.clone()]);
    assert_eq!(seen(2, "2001:db8::9"), [(2, "2001:db8::9".to_owned()), fixed.clone()]);
    // The port at all IPv6 addresses takes IPv4 as well, as this host knows.
    let both = [(1, "192.0.2.9".to_owned()), (1, "192.0.2.9".to_owned()), fixed];
    assert_eq!(seen(2, "192.0.2.9"), both);
}

#[test]
fn what_does_not_fit_is_refused_and_no_more_is_sent_than_was_asked_for() {
    let target = target(blocks());
    let mut line = discovery(&target, HOST, 0);
    let identify = || Sqe { cdw10: 1, ..sqe(0x06, 0) };
    assert_eq!(line.receive(identify(), 4092).status(), Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(line.receive(log(0, 4096), 1024).status(), Status::DATA_SGL_LENGTH_INVALID);
    assert_eq!(line.receive(identify(), 65536).ok().len(), 4096);
    assert_eq!(line.receive(log(0, 1024), 65536).ok().len(), 1024);
    // Behind the last record there are zeroes.
    let page = line.receive(log(0, 8192), 8192).ok();
    assert!(page.len() == 8192 && page[3 * 1024..].iter().all(|byte| *byte == 0));
}

#[test]
fn event_requests_end_when_the_controller_is_disabled() {
    let target = target(blocks());
    let mut line = discovery(&target, HOST, 0);
    let requests: Vec<_> = (0..4).map(|_| line.begin(sqe(0x0c, 0), TRANSPORT, 0).0).collect();
    line.set_property(0x14, 0x0046_0060);
    for request in requests {
        assert_eq!(line.wait_for(request).status(), Status::ABORTED_SQ_DELETION);
    }
    assert_eq!(line.queue.outstanding(), 0);
    line.enable();
    let (request, _) = line.begin(sqe(0x0c, 0), TRANSPORT, 0);
    line.poll();
    assert!(line.take(request).is_none(), "there is room for it");
}
