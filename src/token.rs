//! The fencing token: the number that only ever rises.

use std::fmt;
use std::num::{IntErrorKind, NonZeroU64};
use std::str::FromStr;

/// A number that rises with each grant of a key, so that resources can refuse past holders.
///
/// A token is at least 1 and at most [`MAX`](Self::MAX), so it fits a signed 64-bit database column
/// and leaves 0 free to mean "none yet". Tokens of one key rise with every grant and may skip
/// numbers; tokens of different keys say nothing about each other.
///
/// It is one machine word: copying and comparing cost what they cost for a `u64`.
///
/// ```
/// use tenure::FencingToken;
///
/// let first = FencingToken::new(33)?;
/// let second: FencingToken = "34".parse()?;
/// assert!(second > first);
/// assert_eq!(second.to_string(), "34");
/// # Ok::<(), tenure::TokenError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "u64", into = "u64")
)]
pub struct FencingToken(NonZeroU64);

/// Why a number is not a fencing token.
///
/// ```
/// use tenure::{FencingToken, TokenError};
///
/// assert_eq!(FencingToken::new(0), Err(TokenError::Zero));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// The number is 0, which is never granted.
    Zero,
    /// The number is above [`FencingToken::MAX`].
    TooLarge {
        /// The number that was given; `u64::MAX` if it was a text that does not fit even that.
        value: u64,
    },
    /// The number is below 0.
    Negative {
        /// The number that was given.
        value: i64,
    },
    /// The text is not a decimal number.
    NotANumber,
}

impl FencingToken {
    /// The least token, 1.
    ///
    /// ```
    /// assert_eq!(tenure::FencingToken::MIN.get(), 1);
    /// ```
    pub const MIN: Self = Self(NonZeroU64::MIN);

    /// The greatest token, `i64::MAX`: a billion grants a second reach it after 292 years.
    ///
    /// ```
    /// assert_eq!(tenure::FencingToken::MAX.as_i64(), i64::MAX);
    /// ```
    pub const MAX: Self = Self(NonZeroU64::new(i64::MAX as u64).unwrap());

    /// The token with that number, as stored or received earlier.
    ///
    /// # Errors
    ///
    /// [`TokenError::Zero`] and [`TokenError::TooLarge`], when the number is none that a manager
    /// grants.
    ///
    /// ```
    /// use tenure::{FencingToken, TokenError};
    ///
    /// assert_eq!(FencingToken::new(7).map(FencingToken::get), Ok(7));
    /// assert_eq!(FencingToken::new(u64::MAX), Err(TokenError::TooLarge { value: u64::MAX }));
    /// ```
    pub const fn new(value: u64) -> Result<Self, TokenError> {
        match NonZeroU64::new(value) {
            None => Err(TokenError::Zero),
            Some(_) if value > Self::MAX.get() => Err(TokenError::TooLarge { value }),
            Some(nonzero) => Ok(Self(nonzero)),
        }
    }

    /// A token that the table has granted: it grants no others.
    ///
    /// Has no way to fail, for which a holder of a guard would have to be ready.
    #[inline]
    pub(crate) const fn granted(value: u64) -> Self {
        debug_assert!(value > 0 && value <= Self::MAX.get());
        match NonZeroU64::new(value) {
            Some(value) => Self(value),
            None => Self::MIN,
        }
    }

    /// The number, for storing or sending.
    ///
    /// ```
    /// assert_eq!(tenure::FencingToken::MIN.get(), 1);
    /// ```
    #[inline]
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The number as a signed database column wants it; always positive.
    ///
    /// ```
    /// assert_eq!(tenure::FencingToken::new(7)?.as_i64(), 7);
    /// # Ok::<(), tenure::TokenError>(())
    /// ```
    #[inline]
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.get().cast_signed()
    }

    /// The token after this one, or `None` after [`MAX`](Self::MAX).
    ///
    /// ```
    /// use tenure::FencingToken;
    ///
    /// assert_eq!(FencingToken::MIN.next().map(FencingToken::get), Some(2));
    /// assert_eq!(FencingToken::MAX.next(), None);
    /// ```
    #[inline]
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match Self::new(self.get() + 1) {
            Ok(next) => Some(next),
            Err(_) => None,
        }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for FencingToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        match text.parse::<u64>() {
            Ok(value) => Self::new(value),
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
                Err(TokenError::TooLarge { value: u64::MAX })
            }
            // Tells `-5` from `five`: a signed column that was misread deserves its own advice.
            Err(_) => match text.parse::<i64>() {
                Ok(value) => Self::try_from(value),
                Err(_) => Err(TokenError::NotANumber),
            },
        }
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = TokenError;

    fn try_from(value: u64) -> Result<Self, TokenError> {
        Self::new(value)
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = TokenError;

    fn try_from(value: i64) -> Result<Self, TokenError> {
        match u64::try_from(value) {
            Ok(value) => Self::new(value),
            Err(_) => Err(TokenError::Negative { value }),
        }
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.as_i64()
    }
}

impl From<FencingToken> for NonZeroU64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str(
                "0 is not a fencing token: tokens start at 1; for \"none yet\", store no token \
                 and keep it as an Option",
            ),
            Self::TooLarge { value } => write!(
                f,
                "{value} is not a fencing token: the greatest is {}; check that the number is \
                 one that a grant returned, unchanged",
                FencingToken::MAX
            ),
            Self::Negative { value } => write!(
                f,
                "{value} is not a fencing token: tokens are positive; check that the column or \
                 field it was read from holds a token"
            ),
            Self::NotANumber => f.write_str(
                "not a fencing token: expected a decimal number from 1 to 9223372036854775807; \
                 pass it on as the grant's token prints it",
            ),
        }
    }
}

impl std::error::Error for TokenError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: u64) -> FencingToken {
        FencingToken::new(value).unwrap()
    }

    #[test]
    fn every_token_fits_a_positive_signed_column() {
        for value in [1, 2, i64::MAX as u64 - 1, i64::MAX as u64] {
            assert_eq!(token(value).get(), value);
            assert!(token(value).as_i64() > 0);
            assert_eq!(
                FencingToken::try_from(i64::from(token(value))),
                Ok(token(value))
            );
            assert_eq!(
                FencingToken::try_from(u64::from(token(value))),
                Ok(token(value))
            );
            assert_eq!(NonZeroU64::from(token(value)).get(), value);
        }
    }

    #[test]
    fn numbers_that_are_never_granted_are_refused() {
        let too_large = i64::MAX as u64 + 1;
        assert_eq!(FencingToken::new(0), Err(TokenError::Zero));
        assert_eq!(FencingToken::try_from(0_i64), Err(TokenError::Zero));
        assert_eq!(
            FencingToken::new(too_large),
            Err(TokenError::TooLarge { value: too_large })
        );
        assert_eq!(
            FencingToken::try_from(-1_i64),
            Err(TokenError::Negative { value: -1 })
        );
    }

    #[test]
    fn tokens_order_as_their_numbers_do() {
        assert!(token(9) < token(10));
        assert_eq!(token(9).next(), Some(token(10)));
        assert_eq!(FencingToken::MAX.next(), None);
        assert_eq!(token(i64::MAX as u64 - 1).next(), Some(FencingToken::MAX));
    }

    #[test]
    fn a_printed_token_parses_back() {
        for value in [1, 42, i64::MAX as u64] {
            assert_eq!(token(value).to_string().parse(), Ok(token(value)));
        }
        assert_eq!(format!("{:>4}", token(42)), "  42");
    }

    #[test]
    fn text_that_is_no_token_says_why() {
        let parse = str::parse::<FencingToken>;
        assert_eq!(parse("0"), Err(TokenError::Zero));
        assert_eq!(parse("-5"), Err(TokenError::Negative { value: -5 }));
        assert_eq!(parse(""), Err(TokenError::NotANumber));
        assert_eq!(parse("five"), Err(TokenError::NotANumber));
        assert_eq!(parse("5 "), Err(TokenError::NotANumber));
        assert_eq!(
            parse("9223372036854775808"),
            Err(TokenError::TooLarge { value: 1 << 63 })
        );
        assert_eq!(
            parse("99999999999999999999"),
            Err(TokenError::TooLarge { value: u64::MAX })
        );
    }

    #[test]
    fn every_error_names_the_number_and_the_remedy() {
        let text = TokenError::TooLarge { value: 1 << 63 }.to_string();
        assert!(
            text.contains("9223372036854775808") && text.contains("check"),
            "{text}"
        );
        let text = TokenError::Negative { value: -5 }.to_string();
        assert!(text.contains("-5") && text.contains("check"), "{text}");
        assert!(TokenError::Zero.to_string().contains("start at 1"));
        assert!(TokenError::NotANumber.to_string().contains("decimal"));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_sees_a_plain_number_and_refuses_what_is_no_token() {
        assert_eq!(serde_json::to_string(&token(42)).unwrap(), "42");
        assert_eq!(
            serde_json::from_str::<FencingToken>("42").unwrap(),
            token(42)
        );
        for bad in ["0", "9223372036854775808", "-1", "\"42\"", "null"] {
            assert!(serde_json::from_str::<FencingToken>(bad).is_err(), "{bad}");
        }
        let error = serde_json::from_str::<FencingToken>("0").unwrap_err();
        assert!(error.to_string().contains("start at 1"), "{error}");
    }
}
