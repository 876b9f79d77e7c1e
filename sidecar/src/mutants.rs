//! Deliberate faults, one at a time, that prove the test bench: each must be caught by the promise it breaks.
//!
//! Compiled only with the feature `mutants`, which nothing but tests turns on; elsewhere [`is`] is a constant `false`.

/// A rule of the session protocol, left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    NoFenceCheck,
    /// A commit looks neither at the version nor at the head of the queue: within one lease either implies the other.
    NoVersionCheck,
    InputDroppedOnResume,
    UnsafeToolRerun,
    GoOnAfterReconnectUnchecked,
    NoLock,
    DueForgotten,
    EpochAsCounter,
    AttemptsResetByEvents,
    DeleteWithoutTombstone,
    /// A finished call that is sent again is taken for a new one.
    ReplyForgotten,
    /// An event that is sent again after a lost reply is logged again.
    EventsRepeated,
    /// A tool runs before anybody knows that it will.
    IntentNotJournalled,
    /// A commit does not ask whether somebody has wanted something said meanwhile.
    MarksUnread,
    /// A replica that stops hangs up on clients whose calls go on elsewhere. Breaks no promise of the store's, only the
    /// clients' peace, so it is for real processes.
    NoRelay,
}

impl Mutant {
    /// Every rule of the session protocol.
    pub const ALL: [Self; 14] = [
        Self::NoFenceCheck,
        Self::NoVersionCheck,
        Self::InputDroppedOnResume,
        Self::UnsafeToolRerun,
        Self::GoOnAfterReconnectUnchecked,
        Self::NoLock,
        Self::DueForgotten,
        Self::EpochAsCounter,
        Self::AttemptsResetByEvents,
        Self::DeleteWithoutTombstone,
        Self::ReplyForgotten,
        Self::EventsRepeated,
        Self::IntentNotJournalled,
        Self::MarksUnread,
    ];
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutant;
    use std::cell::Cell;
    use std::sync::OnceLock;

    thread_local!(static ACTIVE: Cell<Option<Mutant>> = const { Cell::new(None) });

    /// One rule left out by the whole process, from its first moment: `HOLDFAST_MUTANT=UnsafeToolRerun`.
    fn of_process() -> Option<Mutant> {
        static OF_PROCESS: OnceLock<Option<Mutant>> = OnceLock::new();
        *OF_PROCESS.get_or_init(|| {
            let name = std::env::var("HOLDFAST_MUTANT").ok()?;
            let mutant = Mutant::ALL.into_iter().chain([Mutant::NoRelay]).find(|m| format!("{m:?}") == name);
            Some(mutant.unwrap_or_else(|| panic!("HOLDFAST_MUTANT={name}: there is no such mutant")))
        })
    }

    /// Runs `body` on this thread with one rule left out.
    pub fn with<T>(mutant: Option<Mutant>, body: impl FnOnce() -> T) -> T {
        struct Reset(Option<Mutant>);
        impl Drop for Reset {
            fn drop(&mut self) {
                ACTIVE.set(self.0);
            }
        }
        let _reset = Reset(ACTIVE.replace(mutant));
        body()
    }

    pub fn is(mutant: Mutant) -> bool {
        ACTIVE.get() == Some(mutant) || of_process() == Some(mutant)
    }
}

#[cfg(not(feature = "mutants"))]
mod switch {
    use super::Mutant;

    #[inline(always)]
    pub const fn is(_: Mutant) -> bool {
        false
    }
}

pub use switch::*;
