//! What a file says: one line with the highest token that was handed out, and a checksum.
//!
//! ```text
//! tenure-reservation 1 1073741824 0f1e2d3c4b5a6978
//! |                  | |          `- SipHash-2-4 of all before it, in hexadecimal
//! |                  | `- the mark, in decimal
//! |                  `- the version of this format
//! `- what it is
//! ```
//!
//! There is one way to write each mark, and nothing else is read: whatever differs in a single bit is no mark. The
//! checksum guards against accidents, not against somebody who means to forge it.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::token::FencingToken;

const MAGIC: &str = "tenure-reservation";
const VERSION: &str = "1";

/// Longer than any mark; a file that has more is not read to its end.
pub(super) const LONGEST: usize = 128;

/// The line for that mark.
pub(super) fn line(mark: u64) -> String {
    let text = format!("{MAGIC} {VERSION} {mark}");
    let checksum = checksum(&text);
    format!("{text} {checksum:016x}\n")
}

/// The mark that a line says, or what is wrong with it.
pub(super) fn parse(content: &[u8]) -> Result<u64, String> {
    let mark = str::from_utf8(content)
        .ok()
        .and_then(|text| text.split(' ').nth(2)?.parse().ok())
        .filter(|mark| *mark <= FencingToken::MAX.get() && line(*mark).as_bytes() == content);
    mark.ok_or_else(|| {
        let newer = |rest: &[u8]| rest.first() == Some(&b' ') && !rest.starts_with(b" 1");
        match content.strip_prefix(MAGIC.as_bytes()) {
            _ if content.is_empty() => "is empty".to_owned(),
            Some(rest) if newer(rest) => format!(
                "has another format than version {VERSION}, or is torn: {}",
                excerpt(content)
            ),
            Some(_) => format!("is torn or was altered: {}", excerpt(content)),
            None => format!("holds something else: {}", excerpt(content)),
        }
    })
}

fn checksum(text: &str) -> u64 {
    // Any key will do, but it has to stay.
    let mut hasher = SipHasher24::new_with_keys(0x7465_6e75_7265, 0x6d61_726b);
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// As much of it as fits a message.
fn excerpt(content: &[u8]) -> String {
    const MOST: usize = 64;
    let more = if content.len() > MOST { "…" } else { "" };
    let shown = &content[..content.len().min(MOST)];
    format!("\"{}{more}\"", shown.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_its_format_stays() {
        for mark in [0, 1, 1 << 30, FencingToken::MAX.get()] {
            assert_eq!(parse(line(mark).as_bytes()), Ok(mark));
            assert!(line(mark).len() <= LONGEST);
        }
        // Files of all versions of this crate have to be read.
        assert_eq!(
            line(1 << 30),
            "tenure-reservation 1 1073741824 a3199fa2ed163c5a\n"
        );
    }

    #[test]
    fn no_token_is_above_the_most() {
        let beyond = line(FencingToken::MAX.get() + 1);
        assert!(parse(beyond.as_bytes()).is_err());
    }

    #[test]
    fn whatever_differs_in_a_bit_or_in_length_is_no_mark() {
        let good = line(123_456);
        for length in 0..good.len() {
            assert!(parse(&good.as_bytes()[..length]).is_err(), "{length}");
        }
        for bit in 0..good.len() * 8 {
            let mut altered = good.clone().into_bytes();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&altered).is_err(), "{bit}");
        }
        for other in [
            format!("{good}\n"),
            format!(" {good}"),
            good.replace(' ', "  "),
            good.to_uppercase(),
            good.replace("1 1", "1 01"),
            good.replace("1 1", "1 +1"),
        ] {
            assert!(parse(other.as_bytes()).is_err(), "{other:?}");
        }
    }

    #[test]
    fn it_says_what_is_wrong() {
        let says = |content: &str, words: &str| {
            let reason = parse(content.as_bytes()).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        };
        says("", "empty");
        says("tenure-reservation 2 abc\n", "another format");
        says("tenure-reservation 1 12", "torn");
        says("tenure-", "something else");
        // What begins like this version has no other format.
        says("tenure-reservation 1 12", "is torn or was altered: \"");
        // As much is shown as helps, and it shows where it is cut off.
        let (whole, longer) = ("x".repeat(64), "x".repeat(65));
        says(&whole, &format!("\"{whole}\""));
        says(&longer, &format!("\"{whole}…\""));
        says(&"hello ".repeat(1000), "\"hello hello ");
    }
}
