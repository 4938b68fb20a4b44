//! The one table of results. Zero is success; there are no others than these.

macro_rules! errors {
    ($($code:literal $name:ident $text:literal;)*) => {
        /// Why a call failed.
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Hash)]
        #[repr(u64)]
        pub enum Error { $(#[doc = $text] $name = $code,)* }

        impl Error {
            /// Every error, by number.
            pub const ALL: &[Error] = &[$(Error::$name,)*];

            /// The error with this number; zero and unknown numbers have none.
            pub const fn from_code(code: u64) -> Option<Self> {
                match code { $($code => Some(Error::$name),)* _ => None }
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Error::$name => stringify!($name),)* }
            }

            /// Its meaning, in a sentence.
            pub const fn text(self) -> &'static str {
                match self { $(Error::$name => $text,)* }
            }
        }
    };
}

errors! {
    1 Protection "No capability in the active protection domain gives the right.";
    2 BadAddress "The address names no object, or the range leaves its object.";
    3 BadArgument "An argument is out of its range or unaligned.";
    4 NoMemory "The system has no free memory or addresses left for this.";
    5 DiskFull "The disk has no room to keep this.";
    6 LimitReached "The account of the task is used up.";
    7 InUse "Something stands at this address already, or what stands there is in use.";
    8 TableFull "The table that this would go into is full.";
    9 NotAnEntry "The address is not a registered entry point.";
    10 Locked "The slot is locked, or a locked domain may not do this.";
    11 BadClist "The object does not hold a well-formed Clist.";
    12 NoSuchThread "No such thread, or not one of the caller's.";
    13 NoSuchSemaphore "No semaphore stands at this address.";
    14 Deleted "The object of the wait was deleted.";
    15 TimedOut "The time is over.";
    16 CalleeFault "The called procedure faulted; the call was unwound.";
    17 TooDeep "Protected calls are nested too deeply.";
    18 BadCall "No such system call.";
    19 CannotGrow "The object has no room behind it.";
    20 DiskError "The disk reports an error, or what it returned is damaged.";
    21 Changed "The word does not hold the expected value.";
    22 NotInCall "The thread is not inside a protected call.";
    23 NoHandler "No handler is registered, or none is running.";
    24 NotPersistent "A stack or another transient object cannot be kept.";
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Error {}

/// A result with an error of the table.
pub type Result<T> = core::result::Result<T, Error>;
