//! For whom a thread acts: its own credentials in place of its process's, for one call, as the kernel's
//! `override_creds` has it. Linux keeps users and groups by thread, and programs that serve several users
//! (Samba) change those of one thread alone.

use std::cell::RefCell;
use std::sync::Arc;

use crate::access::Credentials;

thread_local! {
    static ACTING: RefCell<Option<Arc<Credentials>>> = const { RefCell::new(None) };
}

/// Has what this thread asks for in `act` be done in the name of `who`.
pub fn acting_as<R>(who: &Credentials, act: impl FnOnce() -> R) -> R {
    /// Puts back what was there, also when `act` panics.
    struct Before(Option<Arc<Credentials>>);
    impl Drop for Before {
        fn drop(&mut self) {
            ACTING.set(self.0.take());
        }
    }
    let _before = Before(ACTING.replace(Some(Arc::new(who.clone()))));
    act()
}

/// The credentials that count for this thread instead of those of its process.
pub(super) fn acting() -> Option<Arc<Credentials>> {
    ACTING.with_borrow(Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_acts_for_another_user_until_its_call_ends_however_it_ends() {
        let who = |uid| Credentials { uid, ..Credentials::default() };
        let uid = || acting().map(|who| who.uid);
        assert_eq!(uid(), None);
        acting_as(&who(5), || {
            assert_eq!(uid(), Some(5));
            acting_as(&who(6), || assert_eq!(uid(), Some(6)));
            assert_eq!(uid(), Some(5));
            std::thread::scope(|scope| scope.spawn(|| assert_eq!(uid(), None)).join().expect("joined"));
        });
        assert_eq!(uid(), None);
        let panicked = std::panic::catch_unwind(|| acting_as(&who(5), || panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(uid(), None);
    }
}
