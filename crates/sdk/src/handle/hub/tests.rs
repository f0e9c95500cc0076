use unvme_spec::Nsid;

use crate::handle::{Chooser, HandleOptions, Policies, Queueing, Request};
use crate::{OpenOptions, open};

#[test]
fn what_is_under_way_is_waited_for_when_the_rest_is_refused() {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("open");
    let handle = |text: &str| {
        let options = HandleOptions { blocks: None, policies: text.parse().expect("policies") };
        device.handle(Nsid(1), &options).expect("handle")
    };
    let one = handle("cache=write-back:16M:dirty:16M,queue=own");
    let other = handle("cache=read:1M");
    one.write(0, &vec![7; 4 << 20]).expect("it is in memory");
    // They end one after the other.
    let rule = r#"{ "match": { "opcode": "write" }, "act": { "delay": "200ms-900ms" } }"#;
    device.add_faults(rule).expect("rule");
    let worker = std::sync::Arc::clone(&one.inner.active().worker);
    std::thread::scope(|scope| {
        let closing = scope.spawn(move || one.close());
        while worker.outstanding() < 2 {
            std::thread::yield_now();
        }
        worker.stop_taking();
        closing.join().expect("no panic").expect_err("the queue takes nothing more");
    });
    // Nobody would take it off the queue any more.
    assert_eq!(worker.outstanding(), 0);
    device.clear_faults(None).expect("clear");
    other.flush().expect_err("something is lost");
    other.flush().expect("and that is that");
    other.write(0, &[1; 4096]).expect("nobody has the pages");
}

#[test]
fn what_a_function_says_is_the_queue_that_is_used() {
    let device = open("mem:block:64M", &OpenOptions::default()).expect("open");
    let chooser = Chooser::new(|request: &Request| request.lba as usize / 8);
    let policies = Policies { queue: Queueing::Chosen(chooser), ..Policies::default() };
    let handle = device.handle(Nsid(1), &HandleOptions { blocks: None, policies }).expect("handle");
    let rule = r#"{ "match": { "opcode": "write" }, "act": { "delay": "300s" } }"#;
    device.add_faults(rule).expect("rule");
    let active = handle.inner.active();
    let queues = active.worker.queues();
    for nth in 0..7_u64 {
        let buf = handle.alloc(512).ok();
        handle.submit(Request::write(nth * 8 + 3, 1), buf, nth).expect("submit");
        let used = nth as usize % queues.len();
        let counts: Vec<u64> = queues.iter().map(|queue| queue.outstanding()).collect();
        assert_eq!(counts[used], nth / queues.len() as u64 + 1, "{counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), nth + 1);
    }
    // Nobody waits for them.
    active.worker.close();
    drop((active, handle));
}
