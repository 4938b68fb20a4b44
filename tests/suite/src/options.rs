//! The command line.

use crate::case::Setting;
use testing::Random;

/// Calls that the fuzzing makes unless told otherwise.
const CALLS: u64 = 1_000_000;

/// The purpose of a start.
#[derive(Copy, Clone, Debug)]
pub enum Invocation<'a> {
    /// To run the cases whose name begins so, each in a task of its own.
    Suite {
        /// How their names begin; all if none.
        only: Option<&'a str>,
        /// Whether the beginning of each is told, too.
        verbose: bool,
        /// Their setting.
        setting: Setting,
    },
    /// To run one case.
    Case {
        /// Its name.
        name: &'a str,
        /// Its setting.
        setting: Setting,
    },
    /// To play a part.
    Assistant {
        /// Its name.
        role: &'a str,
        /// Its setting.
        numbers: [u64; 6],
    },
}

impl<'a> Invocation<'a> {
    /// Reads the arguments behind the program's name; the error says what is wrong with them.
    pub fn parse(mut arguments: impl Iterator<Item = &'a str>) -> Result<Self, &'static str> {
        let mut setting = Setting {
            seed: Random::at(rt::time::ticks(), 0).word(),
            calls: CALLS,
        };
        let (mut only, mut name, mut verbose) = (None, None, false);
        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().ok_or("an option lacks its value");
            match option {
                "--only" => only = Some(value()?),
                "--verbose" => verbose = true,
                "--case" => name = Some(value()?),
                "--seed" => setting.seed = number(value()?).ok_or("the seed is no number")?,
                "--calls" => setting.calls = number(value()?).ok_or("the number of calls is no number")?,
                "--assistant" => {
                    let role = value()?;
                    let mut numbers = [0; 6];
                    for (place, text) in numbers.iter_mut().zip(arguments) {
                        *place = number(text).ok_or("an assistant's argument is no number")?;
                    }
                    return Ok(Self::Assistant { role, numbers });
                }
                _ => return Err("unknown option"),
            }
        }
        Ok(match name {
            Some(name) => Self::Case { name, setting },
            None => Self::Suite { only, verbose, setting },
        })
    }
}

/// A number, decimal or, with `0x` before it, hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::Invocation;

    fn parse(line: &'static str) -> Result<Invocation<'static>, &'static str> {
        Invocation::parse(line.split_whitespace())
    }

    #[test]
    fn every_way_to_start_it_is_understood() {
        let Ok(Invocation::Suite {
            only: Some("pdx"),
            verbose: true,
            setting,
        }) = parse("--only pdx --verbose --seed 0x10 --calls 5")
        else {
            panic!()
        };
        assert_eq!((setting.seed, setting.calls), (16, 5));
        let Ok(Invocation::Case { name: "a/b", setting }) = parse("--case a/b --seed 7") else {
            panic!()
        };
        assert_eq!(setting.seed, 7);
        let Ok(Invocation::Assistant { role: "end", numbers }) = parse("--assistant end 0xff 2") else {
            panic!()
        };
        assert_eq!(numbers, [255, 2, 0, 0, 0, 0]);
        for wrong in ["--seed", "--seed x", "--what", "--assistant", "--assistant end x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
