//! User registers.

use abi::nucleus::REGISTER_WORDS;

macro_rules! registers {
    ($($(#[$meta:meta])* $register:ident,)*) => {
        /// User registers, in the order in which the trap entry leaves them in memory (ascending).
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        #[repr(C, align(16))]
        #[allow(missing_docs, reason = "each field is the register of its name")]
        pub struct Context { $($(#[$meta])* pub $register: u64,)* }

        impl Context {
            /// How many words it has.
            pub const WORDS: usize = [$(stringify!($register),)*].len();

            /// The words, in order.
            pub const fn to_words(&self) -> [u64; Self::WORDS] {
                [$(self.$register,)*]
            }

            /// The registers with their names: those that programs use first.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($register), self.$register),)*].into_iter().rev()
            }

            /// From words, in order. None is checked.
            pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
                let [$($register,)*] = words;
                Self { $($register,)* }
            }
        }
    };
}

registers! {
    r15,
    r14,
    r13,
    r12,
    r11,
    r10,
    r9,
    r8,
    rbp,
    rdi,
    rsi,
    rdx,
    rcx,
    rbx,
    rax,
    /// Number of the exception or interrupt; [`Context::OF_CALL`] if it was a call.
    vector,
    /// The processor's error code.
    error,
    rip,
    cs,
    rflags,
    rsp,
    ss,
}

impl Context {
    /// Stands for the vector while only the registers count that carry something over a call: rip, rsp, rax, rdi, rsi,
    /// rdx, r10 and r12 to r15. The others are zero, whatever their fields hold, and the thread goes on by `sysret`,
    /// which takes rcx and r11. Parking and resuming a caller so takes half of the stores that all registers take.
    pub const OF_CALL: u64 = u64::MAX;

    /// Everything scrubbed but where to go on. From now on only the registers of calls count ([`Context::OF_CALL`]).
    #[inline(always)]
    pub fn reset(&mut self, rip: u64, rsp: u64) {
        self.vector = Self::OF_CALL;
        (self.rip, self.rsp) = (rip, rsp);
        (self.rax, self.rdi, self.rsi, self.rdx, self.r10) = (0, 0, 0, 0, 0);
        (self.r12, self.r13, self.r14, self.r15) = (0, 0, 0, 0);
    }

    /// The first words of a message that is sent.
    #[inline(always)]
    pub fn message_words(&self) -> [u64; REGISTER_WORDS] {
        [self.r12, self.r13, self.r14, self.r15]
    }

    /// Sets the first words of a message that is sent or received.
    #[inline(always)]
    pub fn set_message_words(&mut self, words: [u64; REGISTER_WORDS]) {
        [self.r12, self.r13, self.r14, self.r15] = words;
    }

    /// Everything scrubbed but where to go on, and all registers count.
    pub fn scrubbed(rip: u64, rsp: u64) -> Self {
        Self {
            rip,
            cs: USER_CODE,
            rflags: USER_FLAGS,
            rsp,
            ss: USER_DATA,
            ..Self::default()
        }
    }

    /// The registers with all that they hold: for whoever looks at them.
    #[must_use]
    pub fn whole(&self) -> Self {
        if self.vector != Self::OF_CALL {
            return *self;
        }
        Self {
            rax: self.rax,
            rdi: self.rdi,
            rsi: self.rsi,
            rdx: self.rdx,
            r10: self.r10,
            r12: self.r12,
            r13: self.r13,
            r14: self.r14,
            r15: self.r15,
            ..Self::scrubbed(self.rip, self.rsp)
        }
    }

    /// The results of a call: error, value, second value.
    pub fn set_results(&mut self, error: u64, value: u64, value2: u64) {
        self.rax = error;
        self.rdx = value;
        self.rsi = value2;
    }

    /// The first argument registers of a C function; the fourth in r10 as well, because `sysret` takes rcx.
    pub fn set_arguments(&mut self, arguments: [u64; 4]) {
        [self.rdi, self.rsi, self.rdx, self.rcx] = arguments;
        self.r10 = arguments[3];
    }
}

/// Selector of user code, as `sysret` makes it.
pub const USER_CODE: u64 = 0x23;
/// Selector of user data.
pub const USER_DATA: u64 = 0x1b;
/// Flags of user code: interrupts on, nothing else.
pub const USER_FLAGS: u64 = 0x202;
