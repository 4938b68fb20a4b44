//! Synchronous messages as simply as they can be said: threads in a list, searched from the front.

use std::collections::BTreeMap;

use abi::{
    Error,
    nucleus::{ANYONE, INTERRUPTS, NEVER},
};

use super::driver::Answer;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Does {
    /// It runs, or will.
    Runs,
    /// It will do this when its turn comes.
    Will {
        arguments: [u64; 5],
        late: bool,
    },
    /// It sends, since the time `order`.
    Sends {
        arguments: [u64; 5],
        order: u64,
        until: Option<u64>,
    },
    Receives {
        from: u64,
        until: Option<u64>,
    },
}

#[derive(Clone, Debug)]
struct Thread {
    does: Does,
    words: [u64; 4],
    answer: Answer,
}

pub struct Model {
    threads: BTreeMap<u64, Thread>,
    now_us: u64,
    order: u64,
}

fn until(now_us: u64, us: u64) -> Option<u64> {
    (us as u32 != NEVER).then(|| now_us + u64::from(us as u32))
}

impl Model {
    pub fn new(ids: &[u64]) -> Self {
        let mut model = Self {
            threads: BTreeMap::new(),
            now_us: 0,
            order: 0,
        };
        for &id in ids {
            model.add(id);
        }
        model
    }

    pub fn add(&mut self, id: u64) {
        let thread = Thread {
            does: Does::Runs,
            words: [0; 4],
            answer: Answer::default(),
        };
        self.threads.insert(id, thread);
    }

    fn end(&mut self, id: u64, answer: Answer) {
        let thread = self.threads.get_mut(&id).expect("a thread");
        (thread.does, thread.answer) = (Does::Runs, answer);
    }

    fn fail(&mut self, id: u64, error: Error) {
        let error = error as u64;
        self.end(
            id,
            Answer {
                error,
                ..Answer::default()
            },
        );
    }

    pub fn delete(&mut self, victim: u64) {
        self.threads.remove(&victim);
        let all: Vec<(u64, Does)> = self.threads.iter().map(|(&id, thread)| (id, thread.does)).collect();
        for (id, does) in all {
            match does {
                Does::Sends { arguments, .. } if arguments[0] == victim => self.fail(id, Error::NoSuchThread),
                Does::Receives { from, .. } if from == victim => self.fail(id, Error::Deleted),
                _ => {}
            }
        }
    }

    pub fn pass(&mut self, us: u64) {
        self.now_us += us;
        let all: Vec<(u64, Does)> = self.threads.iter().map(|(&id, thread)| (id, thread.does)).collect();
        for (id, does) in all {
            match does {
                Does::Receives { until: Some(at), .. } if at <= self.now_us => self.fail(id, Error::TimedOut),
                Does::Sends {
                    until: Some(at),
                    arguments,
                    ..
                } if at <= self.now_us => {
                    let thread = self.threads.get_mut(&id).expect("a thread");
                    thread.does = Does::Will { arguments, late: true };
                }
                _ => {}
            }
        }
    }

    /// A thread whose turn has come does what it had to do again.
    pub fn again(&mut self, me: u64) {
        let Does::Will { arguments, late } = self.threads[&me].does else {
            panic!("thread {me:#x} has nothing to do again: {:?}", self.threads[&me]);
        };
        self.threads.get_mut(&me).expect("a thread").does = Does::Runs;
        self.run(me, arguments, late);
    }

    /// The values that a thread finds whose turn it is.
    pub fn turn(&self, me: u64) -> Answer {
        let thread = &self.threads[&me];
        assert_eq!(thread.does, Does::Runs, "thread {me:#x} has its turn");
        thread.answer
    }

    pub fn operate(&mut self, me: u64, arguments: [u64; 5], words: [u64; 4]) {
        self.threads.get_mut(&me).expect("a thread").words = words;
        self.run(me, arguments, false);
    }

    fn message(&self, from: u64, tag: u64) -> Answer {
        let words = self.threads[&from].words;
        Answer {
            error: 0,
            tag,
            sender: from,
            words,
        }
    }

    fn run(&mut self, me: u64, arguments: [u64; 5], late: bool) {
        let [to, from, tag, wait, _] = arguments;
        if to != 0 {
            let Some(other) = self.threads.get(&to) else {
                return self.fail(me, Error::NoSuchThread);
            };
            if to == me {
                return self.fail(me, Error::BadArgument);
            }
            match other.does {
                Does::Receives { from, .. } if from == ANYONE || from == me => {
                    let message = self.message(me, tag);
                    self.end(to, message);
                }
                _ if wait >> 32 == 0 || late => return self.fail(me, Error::TimedOut),
                _ => {
                    self.order += 1;
                    let (order, until) = (self.order, until(self.now_us, wait >> 32));
                    let thread = self.threads.get_mut(&me).expect("a thread");
                    thread.does = Does::Sends {
                        arguments,
                        order,
                        until,
                    };
                    return;
                }
            }
        }
        if from == 0 {
            return self.end(me, Answer::default());
        }
        self.receive(me, arguments, late && to == 0);
    }

    fn receive(&mut self, me: u64, arguments: [u64; 5], late: bool) {
        let [_, from, _, wait, _] = arguments;
        let sender = (self.threads.iter())
            .filter_map(|(&id, thread)| match thread.does {
                Does::Sends { arguments, order, .. } if arguments[0] == me && (from == ANYONE || from == id) => {
                    Some((order, id, arguments))
                }
                _ => None,
            })
            .min();
        if let Some((_, id, theirs)) = sender {
            let message = self.message(id, theirs[2]);
            self.end(me, message);
            let [_, next, _, wait, _] = theirs;
            let thread = self.threads.get_mut(&id).expect("a thread");
            if next == 0 {
                self.end(id, Answer::default());
            } else if next == me && wait as u32 != 0 {
                thread.does = Does::Receives {
                    from: me,
                    until: until(self.now_us, wait),
                };
            } else {
                thread.does = Does::Will {
                    arguments: [0, next, theirs[2], wait, theirs[4]],
                    late: false,
                };
            }
            return;
        }
        let error = match from {
            ANYONE => None,
            interrupt if (1..=INTERRUPTS).contains(&interrupt) => Some(Error::BadArgument),
            partner if !self.threads.contains_key(&partner) => Some(Error::NoSuchThread),
            partner if partner == me => Some(Error::BadArgument),
            _ => None,
        };
        if let Some(error) = error {
            return self.fail(me, error);
        }
        if wait as u32 == 0 || late {
            return self.fail(me, Error::TimedOut);
        }
        let until = until(self.now_us, wait);
        self.threads.get_mut(&me).expect("a thread").does = Does::Receives { from, until };
    }
}
