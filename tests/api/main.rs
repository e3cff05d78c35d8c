//! The public API from outside: every typed error, and what the types promise.

mod errors;
mod options;
mod values;

use std::error::Error;
use std::time::Duration;

use tenure::{Builder, FencingToken, LockManager, ManualClock};

const SECOND: Duration = Duration::from_secs(1);

fn on(clock: &ManualClock) -> Builder {
    LockManager::builder().clock(clock.clone()).driver(false)
}

fn manual() -> (LockManager, ManualClock) {
    let clock = ManualClock::new();
    (
        on(&clock).build().expect("these options are in order"),
        clock,
    )
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).expect("this is in range")
}

/// An error says more than its name: it names its numbers, and what to do next (I11).
fn advises(error: &dyn Error, numbers: &[&str]) {
    const ADVICE: [&str; 13] = [
        "again", "acquire", "ask", "release", "raise", "use", "check", "keep", "choose", "lower",
        "must", "free", "open",
    ];
    let text = error.to_string();
    assert!(text.len() > 30, "{text:?} is too short to help");
    assert!(
        !text.ends_with('.') && !text.contains('\n'),
        "{text:?} is no error text"
    );
    for number in numbers {
        assert!(text.contains(number), "{text:?} does not say {number}");
    }
    let advice = |word: &str| ADVICE.iter().any(|advice| word.starts_with(advice));
    let words = text.split(|c: char| !c.is_alphabetic());
    assert!(
        words.into_iter().any(advice),
        "{text:?} does not say what to do next"
    );
}
