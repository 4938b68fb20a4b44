//! Mutants as switches: where a source file can be changed a little, and the file with all changes in it, each behind a question.
//!
//! A change of an expression E into M is written `(if crate::mutation::on(7) { M } else { E })`, so that all mutants are compiled
//! together and an environment variable chooses one. Both are copied as text: lines keep their numbers, and M has no
//! mutants of its own. Constants, patterns, types, macros' arguments and what stands behind `cfg` or `test` are left alone.

use std::ops::Range;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Item, Pat, ReturnType, Signature, Stmt, Type};

/// A small change of the logic.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The text around it: what stands before and behind the bytes of `span`.
    before: String,
    behind: &'static str,
    span: Range<usize>,
    /// The function, and the change.
    pub what: String,
    pub line: usize,
}

/// A source file and its mutants.
pub struct Source {
    pub path: PathBuf,
    text: String,
    pub mutants: Vec<Mutant>,
}

/// The files whose code says whether invariants hold: it runs in tests, fuzzers and debuggers alone, and a mutant of it breaks no invariant.
const CHECKS: &str = "check.rs";
/// The function that only holds the compiler back.
const IN_ORDER: &str = "in_order";
/// Statements that change only a log or a trace for people, or only hold the compiler back.
const WITHOUT_EFFECT: [&str; 3] = ["log", "trace", IN_ORDER];

/// The function that each mutant asks, for the end of each crate's first file. `MUTANT` is the number of one, or the name of
/// a file that takes the number of each that is asked for, four bytes each: tests of memory want no allocation here.
const QUESTION: &str = "
#[cfg(all())]
pub mod mutation {
    extern crate std;
    use std::io::Write;
    use std::sync::{OnceLock, atomic::{AtomicBool, Ordering}};

    static CHOSEN: OnceLock<(usize, Option<std::fs::File>)> = OnceLock::new();
    static ASKED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    /// Whether this mutant is switched on.
    #[inline]
    pub fn on(mutant: usize) -> bool {
        let (chosen, file) = CHOSEN.get_or_init(|| {
            let text = std::env::var(\"MUTANT\").unwrap_or_default();
            let open = || std::fs::OpenOptions::new().append(true).create(true).open(&text).ok();
            text.parse().map_or_else(|_| (usize::MAX, open()), |chosen| (chosen, None))
        });
        if let Some(mut file) = file.as_ref() {
            if !ASKED[mutant].swap(true, Ordering::Relaxed) {
                file.write_all(&(mutant as u32).to_le_bytes()).unwrap();
            }
        }
        *chosen == mutant
    }
}
";

/// Adds the function that mutants ask to a crate's first file.
pub fn add_question(first: &Path, count: usize) -> std::io::Result<()> {
    let text = std::fs::read_to_string(first)? + &QUESTION.replace("COUNT", &count.to_string());
    std::fs::write(first, text)
}

/// The source files of a crate, from its first, with all mutants.
pub fn sources(first: &Path) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut waiting = vec![(first.to_owned(), first.parent().unwrap_or(first).to_owned())];
    while let Some((path, folder)) = waiting.pop() {
        let text = std::fs::read_to_string(&path)?;
        let file = syn::parse_file(&text)?;
        for item in &file.items {
            if let Item::Mod(module) = item
                && module.content.is_none()
                && !is_apart(&module.attrs)
            {
                let own = folder.join(module.ident.to_string());
                let flat = own.with_extension("rs");
                waiting.push((if flat.exists() { flat } else { own.join("mod.rs") }, own));
            }
        }
        let mut finder = Finder {
            text: &text,
            place: Vec::new(),
            found: Vec::new(),
        };
        if path.file_name().is_none_or(|name| name != CHECKS) {
            finder.visit_file(&file);
        }
        let mutants = finder.found;
        found.push(Source { path, text, mutants });
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// The places of a written file's mutants: the number of each, the bytes that are its own, and all that it stands around.
pub type Places = Vec<(usize, Range<usize>, Range<usize>)>;

/// Writes a file, unless it is written already, with some of its mutants, which go by the numbers given.
pub fn write(source: &Source, chosen: &[(usize, usize)]) -> anyhow::Result<Places> {
    let mut outer_first: Vec<(usize, &Mutant)> = chosen
        .iter()
        .map(|(number, index)| (*number, &source.mutants[*index]))
        .collect();
    outer_first.sort_by_key(|(_, mutant)| (mutant.span.start, std::cmp::Reverse(mutant.span.end)));
    let (mut text, mut places, mut at, mut open) = (String::new(), Places::new(), 0, Vec::<(usize, &Mutant)>::new());
    let close = |text: &mut String, places: &mut Places, (place, mutant): (usize, &Mutant), at: usize| {
        text.push_str(&source.text[at..mutant.span.end]);
        text.push_str(mutant.behind);
        places[place].2.end = text.len();
        mutant.span.end
    };
    for (number, mutant) in outer_first {
        while open
            .last()
            .is_some_and(|(_, last)| last.span.end <= mutant.span.start && last.span != mutant.span)
        {
            at = close(&mut text, &mut places, open.pop().unwrap(), at);
        }
        text.push_str(&source.text[at..mutant.span.start]);
        at = mutant.span.start;
        let start = text.len();
        text.push_str(&mutant.before.replace('№', &number.to_string()));
        open.push((places.len(), mutant));
        places.push((number, start..text.len(), start..text.len()));
    }
    while let Some(last) = open.pop() {
        at = close(&mut text, &mut places, last, at);
    }
    text.push_str(&source.text[at..]);
    if std::fs::read_to_string(&source.path)? != text {
        std::fs::write(&source.path, text)?;
    }
    Ok(places)
}

/// Whether these attributes set something apart from what runs.
fn is_apart(attributes: &[syn::Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().is_ident("cfg") || attribute.path().is_ident("test"))
}

struct Finder<'a> {
    text: &'a str,
    place: Vec<String>,
    found: Vec<Mutant>,
}

impl Finder<'_> {
    fn of(&self, node: &impl Spanned) -> &str {
        &self.text[node.span().byte_range()]
    }

    fn add(&mut self, at: proc_macro2::Span, span: Range<usize>, (before, behind): (String, &'static str), what: &str) {
        self.found.push(Mutant {
            before,
            behind,
            span,
            what: format!("{}: {what}", self.place.join("::")),
            line: at.start().line,
        });
    }

    /// An expression that becomes another.
    fn swap(&mut self, node: &impl Spanned, instead: &str, what: &str) {
        let around = (format!("(if crate::mutation::on(№) {{ {instead} }} else {{ "), " })");
        self.add(node.span(), node.span().byte_range(), around, what);
    }

    /// A condition of a match arm that is given, or added behind the pattern.
    fn arm(&mut self, arm: &syn::Arm, is_last: bool) {
        let pattern = self.of(&arm.pat).split_whitespace().collect::<Vec<_>>().join(" ");
        match &arm.guard {
            Some((_, guard)) if !has_let(guard) => {
                self.swap(&**guard, "true", &format!("the condition of arm `{pattern}` is true"));
                self.swap(&**guard, "false", &format!("the condition of arm `{pattern}` is false"));
            }
            None if !is_last => {
                let end = arm.pat.span().byte_range().end;
                let guard = (" if !crate::mutation::on(№)".to_owned(), "");
                self.add(arm.span(), end..end, guard, &format!("arm `{pattern}` is missing"));
            }
            _ => {}
        }
    }

    fn function(&mut self, signature: &Signature, block: &syn::Block) {
        if signature.constness.is_some() || block.stmts.is_empty() || signature.ident == IN_ORDER {
            return;
        }
        self.place.push(signature.ident.to_string());
        let start = block.brace_token.span.open().byte_range().end;
        let body = self.text[start..block.brace_token.span.close().byte_range().start]
            .trim()
            .to_owned();
        let values = match &signature.output {
            ReturnType::Default => vec![String::new()],
            ReturnType::Type(_, result) => Self::values(result),
        };
        for value in values
            .iter()
            .filter(|value| **value != body && signature.ident != "default")
        {
            let early = (format!(" if crate::mutation::on(№) {{ return {value}; }}"), "");
            self.add(
                signature.span(),
                start..start,
                early,
                &format!("returns `{value}` at once"),
            );
        }
        visit::visit_block(self, block);
        self.place.pop();
    }

    /// Plain values of a type: a mutant returns one of them without any work.
    fn values(result: &Type) -> Vec<String> {
        let Type::Path(path) = result else {
            return match result {
                Type::Tuple(_) => vec!["Default::default()".into()],
                _ => Vec::new(),
            };
        };
        let Some(last) = path.path.segments.last() else {
            return Vec::new();
        };
        let inner = || match &last.arguments {
            syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
                Some(syn::GenericArgument::Type(Type::Tuple(tuple))) if tuple.elems.is_empty() => vec!["()".into()],
                Some(syn::GenericArgument::Type(inner)) => Self::values(inner),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        let wrapped = |name: &str| {
            inner()
                .into_iter()
                .map(|value| format!("{name}({value})"))
                .collect::<Vec<_>>()
        };
        match last.ident.to_string().as_str() {
            "bool" => vec!["true".into(), "false".into()],
            "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => vec!["0".into(), "1".into()],
            "Option" => [vec!["None".into()], wrapped("Some")].concat(),
            "Result" => wrapped("Ok"),
            _ => vec!["Default::default()".into()],
        }
    }
}

/// Whether a condition binds names, which it could not inside of another expression.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// The operators that take the place of one.
fn instead(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Add(_) | BinOp::Div(_) => &["-", "*"],
        BinOp::Sub(_) | BinOp::Rem(_) => &["+"],
        BinOp::Mul(_) => &["/"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::BitAnd(_) | BinOp::BitXor(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::MulAssign(_) => &["/="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        BinOp::BitAndAssign(_) | BinOp::BitXorAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path_arguments(&mut self, _: &'ast syn::PathArguments) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_apart(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let is_shown = block
            .trait_
            .as_ref()
            .is_some_and(|(_, path, _)| path.segments.iter().any(|part| part.ident == "Debug"));
        if !is_apart(&block.attrs) && !is_shown {
            let name = self
                .of(&*block.self_ty)
                .split('<')
                .next()
                .unwrap_or_default()
                .to_owned();
            self.place.push(name);
            visit::visit_item_impl(self, block);
            self.place.pop();
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.place.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.place.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_apart(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_apart(&item.attrs) {
            self.function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes: &[_] = match statement {
            Stmt::Local(local) => &local.attrs,
            Stmt::Expr(Expr::MethodCall(call), _) => &call.attrs,
            Stmt::Expr(Expr::Call(call), _) => &call.attrs,
            _ => &[],
        };
        if is_apart(attributes) {
            return;
        }
        if let Stmt::Expr(expression, Some(_)) = statement {
            let inner = match expression {
                Expr::Try(inner) => &*inner.expr,
                other => other,
            };
            let called = match inner {
                Expr::MethodCall(call) => Some(&call.method),
                Expr::Call(call) => match &*call.func {
                    Expr::Path(path) => path.path.segments.last().map(|last| &last.ident),
                    _ => None,
                },
                _ => None,
            };
            let is_silent = called.is_some_and(|name| WITHOUT_EFFECT.iter().any(|silent| name == silent));
            if matches!(inner, Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_)) && !is_silent {
                let what = self.of(expression).split_whitespace().collect::<Vec<_>>().join(" ");
                let around = ("if !crate::mutation::on(№) { ".to_owned(), " }");
                self.add(
                    statement.span(),
                    statement.span().byte_range(),
                    around,
                    &format!("without `{what};`"),
                );
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            for operator in instead(&binary.op) {
                let changed = format!("{} {operator} {}", self.of(&*binary.left), self.of(&*binary.right));
                let what = format!("`{}` becomes `{operator}`", self.of(&binary.op));
                self.swap(binary, &changed, &what);
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if !matches!(unary.op, syn::UnOp::Deref(_)) {
            let (changed, what) = (
                self.of(&*unary.expr).to_owned(),
                format!("without `{}`", self.of(&unary.op)),
            );
            self.swap(unary, &changed, &what);
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_match(&mut self, block: &'ast syn::ExprMatch) {
        let takes_all = |pattern: &Pat| match pattern {
            Pat::Wild(_) => true,
            // A name in capitals is a constant or a variant.
            Pat::Ident(name) => name.ident.to_string().starts_with(|first: char| first.is_lowercase()),
            _ => false,
        };
        let last = block.arms.last();
        let rest = last.is_some_and(|arm| arm.guard.is_none() && takes_all(&arm.pat));
        for (index, arm) in block.arms.iter().enumerate() {
            self.arm(arm, !rest || index + 1 == block.arms.len());
        }
        visit::visit_expr_match(self, block);
    }
}
