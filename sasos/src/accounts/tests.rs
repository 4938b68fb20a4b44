//! The ledger, alone and against a model.

use super::*;
use proptest::prelude::*;

fn limited(resource: Resource, limit: u64) -> Amounts {
    let mut limits = UNLIMITED;
    limits[resource as usize] = limit;
    limits
}

#[test]
fn a_family_takes_no_more_than_its_head_allows() {
    let mut ledger = Ledger::new(1);
    let head = ledger.open(AccountId::ROOT, limited(Resource::Blocks, 10)).unwrap();
    let [one, other] = [(); 2].map(|()| ledger.open(head, UNLIMITED).unwrap());
    ledger.take(one, Resource::Blocks, 6).unwrap();
    assert_eq!(
        ledger.take(other, Resource::Blocks, 5).unwrap_err(),
        Error::LimitReached
    );
    assert_eq!(ledger.used(other, Resource::Blocks), 0, "all or nothing");
    assert_eq!(ledger.used(head, Resource::Blocks), 6);
    ledger.take(other, Resource::Blocks, 4).unwrap();
    // The orphan's blocks are paid by its record, which stays until they come back.
    ledger.close(one);
    ledger.close(head);
    assert_eq!(ledger.count(), 4);
    ledger.give(one, Resource::Blocks, 6);
    assert_eq!(ledger.count(), 3);
    ledger.give(other, Resource::Blocks, 4);
    ledger.close(other);
    assert_eq!(ledger.count(), 1);
    assert_eq!(ledger.used(AccountId::ROOT, Resource::Bytes), 0);
}

#[test]
fn numbers_name_one_account_for_ever() {
    let mut ledger = Ledger::new(3);
    let first = ledger.open(AccountId::ROOT, UNLIMITED).unwrap();
    let number = ledger.number(first);
    assert_eq!(ledger.find(number), first);
    ledger.close(first);
    let second = ledger.open(AccountId::ROOT, UNLIMITED).unwrap();
    assert_eq!(ledger.find(number), AccountId::ROOT);
    // Rising, and above all that an earlier start gave.
    assert!(ledger.number(second) > number && number >> PLACE_BITS >= 3 << 20);
    assert_eq!(ledger.find(0), AccountId::ROOT);
    assert_eq!(ledger.find(u64::MAX), AccountId::ROOT);
}

#[test]
fn families_are_sixteen_accounts_deep_at_most() {
    let mut ledger = Ledger::new(1);
    let mut account = AccountId::ROOT;
    for _ in 0..DEPTH_MAX {
        account = ledger.open(account, UNLIMITED).unwrap();
    }
    assert_eq!(
        ledger.open(account, UNLIMITED),
        Err(Error::LimitReached),
        "none escapes its limits"
    );
    ledger.take(account, Resource::Threads, 1).unwrap();
    ledger.empty_all_hands();
    let mut steps = 0;
    while account != AccountId::ROOT {
        assert_eq!(ledger.used(account, Resource::Threads), 1);
        account = ledger.parent(account);
        steps += 1;
    }
    assert_eq!(steps, u32::from(DEPTH_MAX));
}

#[test]
fn a_hand_is_no_way_around_a_limit() {
    let mut ledger = Ledger::new(1);
    let head = ledger.open(AccountId::ROOT, limited(Resource::Frames, 20)).unwrap();
    let one = ledger.open(head, UNLIMITED).unwrap();
    for taken in 0..20 {
        assert_eq!(ledger.used(one, Resource::Frames), taken);
        ledger.take(one, Resource::Frames, 1).unwrap();
    }
    assert_eq!(ledger.take(one, Resource::Frames, 1), Err(Error::LimitReached));
    // A child of it gets what its hand has, and no more.
    let child = ledger.open(one, UNLIMITED).unwrap();
    ledger.give(one, Resource::Frames, 5);
    for _ in 0..5 {
        ledger.take(child, Resource::Frames, 1).unwrap();
    }
    assert_eq!(ledger.take(child, Resource::Frames, 1), Err(Error::LimitReached));
    ledger.give(one, Resource::Frames, 15);
    ledger.close(one);
    assert_eq!(ledger.used(head, Resource::Frames), 5);
    ledger.give(child, Resource::Frames, 5);
    ledger.close(child);
    assert_eq!(ledger.used(head, Resource::Frames), 0);
}

/// A task that makes no semaphore keeps none from others.
#[test]
fn idle_accounts_have_no_semaphores_in_hand() {
    let mut ledger = Ledger::new(1);
    let head = ledger.open(AccountId::ROOT, limited(Resource::Semaphores, 8)).unwrap();
    let idle: Vec<AccountId> = (0..20).map(|_| ledger.open(head, UNLIMITED).unwrap()).collect();
    let busy = ledger.open(head, UNLIMITED).unwrap();
    for _ in 0..8 {
        ledger.take(busy, Resource::Semaphores, 1).unwrap();
    }
    for account in idle {
        ledger.close(account);
    }
}

fn sum(model: &[(AccountId, Option<usize>, u64, u64, bool)], of: usize) -> u64 {
    let below: u64 = (0..model.len())
        .filter(|&at| model[at].1 == Some(of))
        .map(|at| sum(model, at))
        .sum();
    model[of].3 + below
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize, u64),
    Close(usize),
    Charge(usize, u64),
    Refund(usize, u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any::<usize>(), 0_u64..40).prop_map(|(parent, limit)| Step::Open(parent, limit)),
        any::<usize>().prop_map(Step::Close),
        (any::<usize>(), 0_u64..20).prop_map(|(which, amount)| Step::Charge(which, amount)),
        (any::<usize>(), 0_u64..20).prop_map(|(which, amount)| Step::Refund(which, amount)),
    ]
}

proptest! {
    /// Held against a model that adds up what each account and those below it were charged for.
    #[test]
    fn what_is_charged_is_what_those_below_pay(steps in prop::collection::vec(any_step(), 0..120)) {
        let mut ledger = Ledger::new(1);
        // Account, place of the parent in this list, limit, own charges, open.
        let mut model: Vec<(AccountId, Option<usize>, u64, u64, bool)> = vec![(AccountId::ROOT, None, u64::MAX, 0, true)];
        for step in steps {
            match step {
                Step::Open(parent, limit) => {
                    let parent = parent % model.len();
                    if model[parent].4 && ledger.record(model[parent].0).depth < DEPTH_MAX {
                        let account = ledger.open(model[parent].0, limited(Resource::Slots, limit)).unwrap();
                        model.push((account, Some(parent), limit, 0, true));
                    }
                }
                Step::Close(which) => {
                    let which = which % model.len();
                    if which > 0 && model[which].4 {
                        model[which].4 = false;
                        ledger.close(model[which].0);
                    }
                }
                Step::Charge(which, amount) => {
                    let which = which % model.len();
                    if model[which].4 {
                        let mut fits = true;
                        let mut at = Some(which);
                        while let Some(place) = at {
                            fits &= sum(&model, place) + amount <= model[place].2;
                            at = model[place].1;
                        }
                        // Amounts that others have in hand are no reason to refuse in the model.
                        ledger.empty_all_hands();
                        let charged = ledger.take(model[which].0, Resource::Slots, amount);
                        prop_assert_eq!(charged.is_ok(), fits);
                        if charged.is_ok() {
                            model[which].3 += amount;
                        }
                    }
                }
                Step::Refund(which, amount) => {
                    let which = which % model.len();
                    let amount = amount.min(model[which].3);
                    if amount > 0 {
                        model[which].3 -= amount;
                        ledger.give(model[which].0, Resource::Slots, amount);
                    }
                }
            }
            ledger.empty_all_hands();
            prop_assert_eq!(ledger.used(AccountId::ROOT, Resource::Bytes), RECORD_BYTES * (ledger.count() as u64 - 1));
            for (place, &(account, _, _, _, open)) in model.iter().enumerate() {
                let sum = sum(&model, place);
                if open || sum > 0 {
                    prop_assert_eq!(ledger.used(account, Resource::Slots), sum);
                }
            }
        }
    }
}

/// The account of all programs, which may have 40 dirty pages, and so many programs.
fn programs_of(count: usize) -> (Ledger, AccountId, Vec<AccountId>) {
    let mut ledger = Ledger::new(1);
    let mut limits = UNLIMITED;
    limits[Resource::Dirty as usize] = 40;
    let programs = ledger.open(AccountId::ROOT, limits).unwrap();
    let all = (0..count).map(|_| ledger.open(programs, UNLIMITED).unwrap());
    let all = all.collect();
    (ledger, programs, all)
}

/// Pages that an account makes dirty in this round, one by one.
fn takes(ledger: &mut Ledger, programs: AccountId, account: AccountId) -> u64 {
    let mut pages = 0;
    while pages < 100 && ledger.is_part_left(account, programs) {
        ledger.take_of_part(account, programs, 1);
        pages += 1;
    }
    pages
}

#[test]
fn programs_share_a_round_by_those_that_asked_before() {
    let (mut ledger, programs, all) = programs_of(3);
    assert_eq!(takes(&mut ledger, programs, all[0]), 30);
    // A task of the program has its part.
    let task = ledger.open(all[0], UNLIMITED).unwrap();
    assert_eq!(takes(&mut ledger, programs, task), 0);
    assert_eq!(takes(&mut ledger, programs, AccountId::ROOT), 100);
    assert_eq!(takes(&mut ledger, programs, programs), 100, "nobody's program");
    assert_eq!(
        takes(&mut ledger, AccountId::ROOT, all[0]),
        100,
        "there are no programs yet"
    );
    ledger.begin_round();
    let (task, other) = (takes(&mut ledger, programs, task), takes(&mut ledger, programs, all[1]));
    assert_eq!((task, other), (30, 30), "one has asked before");
    for _ in 0..2 {
        ledger.begin_round();
        let both = [0, 1].map(|program| takes(&mut ledger, programs, all[program]));
        assert_eq!(both, [15, 15]);
    }
    ledger.begin_round();
    assert_eq!(
        takes(&mut ledger, programs, all[2]),
        15,
        "what is left is less than that of all"
    );
    ledger.begin_round();
    assert_eq!(takes(&mut ledger, programs, all[0]), 30, "the others ask no more");
}

#[test]
fn what_exceeds_a_part_is_made_up_for_only_beside_others() {
    let (mut ledger, programs, all) = programs_of(2);
    let [first, second] = [all[0], all[1]];
    assert!(ledger.is_part_left(first, programs));
    ledger.take_of_part(first, programs, 100);
    assert!(!ledger.is_part_left(first, programs), "this round is used up");
    ledger.begin_round();
    assert!(ledger.is_part_left(first, programs) && ledger.is_part_left(second, programs));
    ledger.take_of_part(first, programs, 50);
    let mut rounds = 0;
    loop {
        ledger.begin_round();
        assert_eq!(takes(&mut ledger, programs, second), 15);
        rounds += 1;
        if ledger.is_part_left(first, programs) {
            break;
        }
    }
    assert_eq!(rounds, 2, "30 of 50 were its part, and 20 are more than 15");
    ledger.give_to_part(first, programs, 2);
    ledger.give_to_part(second, programs, 15);
    assert_eq!(takes(&mut ledger, programs, first), 12);
    assert_eq!(takes(&mut ledger, programs, second), 15, "a sync has taken these over");
}

#[test]
fn more_programs_than_pages_go_on_one_by_one() {
    let (mut ledger, programs, all) = programs_of(70);
    let (mut pages, mut served) = ([0; 70], [0; 70]);
    for round in 0..140 {
        let mut left = 40;
        // The first of them is always the first to go on.
        for (place, &program) in all.iter().enumerate() {
            while ledger.is_part_left(program, programs) && left > 0 {
                ledger.take_of_part(program, programs, 1);
                pages[place] += 1;
                served[place] = round;
                left -= 1;
            }
            assert!(
                round - served[place] <= 3,
                "round {round}: program {place} waits too long"
            );
        }
        ledger.begin_round();
    }
    let (least, most) = (pages.iter().min().unwrap(), pages.iter().max().unwrap());
    assert!(*least >= 55 && most - least <= 35, "{pages:?}");
}
