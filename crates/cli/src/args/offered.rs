//! Values that shell completions offer for an option. What else it takes, such as a file, is up to
//! its parser.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};

/// A parser with the values that are offered.
#[derive(Clone)]
pub(crate) struct Offered<P> {
    names: fn() -> Vec<&'static str>,
    parser: P,
}

/// Offers `names` for what `parser` reads.
pub(crate) const fn offered<P>(names: fn() -> Vec<&'static str>, parser: P) -> Offered<P> {
    Offered { names, parser }
}

impl<P: TypedValueParser> TypedValueParser for Offered<P> {
    type Value = P::Value;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        self.parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = (self.names)().into_iter();
        Some(Box::new(names.map(PossibleValue::new)))
    }
}
