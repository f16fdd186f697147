//! What one module's text says: the names it defines, what it imports, and the paths of its code.
//!
//! Code for tests only is left out. Macros are not expanded: paths in their arguments and bodies
//! count, names that they define do not.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprLit, Field, ImplItem, Item, ItemUse, Lit, Macro, Meta, MetaList, Path,
    Token, TraitItem, UseTree, Visibility,
};

/// Segments of a path such as `crate::a::B`; a leading `::` is an empty segment.
pub(super) type Segments = Vec<String>;

/// One module without the modules in it.
#[derive(Default)]
pub(super) struct Source {
    /// Items that it defines, modules excepted.
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    /// Paths of its code, `use` lines excepted.
    pub paths: BTreeSet<Segments>,
    pub modules: Vec<Child>,
}

/// One leaf of a `use` tree.
pub(super) struct Import {
    /// The name that it binds.
    pub binds: Binding,
    pub path: Segments,
    /// With its own visibility: it hands the name on, which does not count as a use.
    pub is_re_export: bool,
}

/// What a leaf of a `use` tree brings into the module.
#[derive(PartialEq)]
pub(super) enum Binding {
    Name(String),
    All,
    /// `as _`
    Nothing,
}

/// A module in a module.
pub(super) struct Child {
    pub name: String,
    /// The value of `#[path]`.
    pub path: Option<String>,
    /// The text between its braces; without it the module is a file.
    pub inline: Option<Source>,
}

impl Source {
    pub(super) fn parse(text: &str) -> syn::Result<Self> {
        Ok(Self::of(&syn::parse_file(text)?.items))
    }

    fn of(items: &[Item]) -> Self {
        let mut source = Self::default();
        for item in items.iter().filter(|item| !for_tests(attributes(item))) {
            source.items.extend(name(item));
            source.visit_item(item);
        }
        source
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        if for_tests(attributes(item)) {
            return;
        }
        let Item::Mod(module) = item else {
            return visit::visit_item(self, item);
        };
        let content = module.content.as_ref();
        self.modules.push(Child {
            name: module.ident.to_string(),
            path: module.attrs.iter().find_map(path_attribute),
            inline: content.map(|(_, items)| Self::of(items)),
        });
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_re_export = !matches!(item.vis, Visibility::Inherited);
        let prefix = item.leading_colon.as_ref().map(|_| String::new());
        let mut leaves = Vec::new();
        flatten(&item.tree, &prefix.into_iter().collect(), &mut leaves);
        self.imports
            .extend(leaves.into_iter().map(|(binds, path)| Import {
                binds,
                path,
                is_re_export,
            }));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => return visit::visit_impl_item(self, item),
        };
        if !for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes = match item {
            TraitItem::Const(item) => &item.attrs,
            TraitItem::Fn(item) => &item.attrs,
            TraitItem::Type(item) => &item.attrs,
            TraitItem::Macro(item) => &item.attrs,
            _ => return visit::visit_trait_item(self, item),
        };
        if !for_tests(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let prefix = path.leading_colon.as_ref().map(|_| String::new());
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.paths.insert(prefix.into_iter().chain(names).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.visit_path(&called.path);
        token_paths(called.tokens.clone(), &mut self.paths);
    }

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        token_paths(list.tokens.clone(), &mut self.paths);
    }
}

/// The name that an item defines in its module.
fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item with these attributes exists in tests only.
fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<Meta>()
                    .is_ok_and(|meta| needs_test(&meta))
    })
}

/// Whether a `cfg` predicate holds in tests only.
fn needs_test(predicate: &Meta) -> bool {
    let Meta::List(list) = predicate else {
        return predicate.path().is_ident("test");
    };
    let parse = Punctuated::<Meta, Token![,]>::parse_terminated;
    let Ok(inner) = list.parse_args_with(parse) else {
        return false;
    };
    if list.path.is_ident("all") {
        return inner.iter().any(needs_test);
    }
    list.path.is_ident("any") && !inner.is_empty() && inner.iter().all(needs_test)
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) if pair.path.is_ident("path") => Some(text.value()),
        _ => None,
    }
}

/// Leaves of a `use` tree with their whole paths.
fn flatten(tree: &UseTree, prefix: &Segments, leaves: &mut Vec<(Binding, Segments)>) {
    let with = |name: &dyn ToString| {
        let mut path = prefix.clone();
        path.push(name.to_string());
        path
    };
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &with(&path.ident), leaves),
        // `use a::b::{self}` imports `b`.
        UseTree::Name(leaf) if leaf.ident == "self" => {
            let name = prefix.last().cloned().unwrap_or_default();
            leaves.push((Binding::Name(name), prefix.clone()));
        }
        UseTree::Name(leaf) => {
            leaves.push((Binding::Name(leaf.ident.to_string()), with(&leaf.ident)));
        }
        UseTree::Rename(leaf) => {
            let binds = match leaf.rename.to_string().as_str() {
                "_" => Binding::Nothing,
                name => Binding::Name(name.to_owned()),
            };
            let own = leaf.ident == "self";
            let path = own.then(|| prefix.clone());
            leaves.push((binds, path.unwrap_or_else(|| with(&leaf.ident))));
        }
        UseTree::Glob(_) => leaves.push((Binding::All, prefix.clone())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, leaves);
            }
        }
    }
}

/// What looks like a path in a macro's tokens: names between `::`, but no field, no lifetime and
/// no parameter of the macro.
fn token_paths(tokens: TokenStream, paths: &mut BTreeSet<Segments>) {
    let mut path = Segments::new();
    let mut before = String::new();
    for token in tokens {
        let text = match token {
            TokenTree::Group(group) => {
                token_paths(group.stream(), paths);
                String::new()
            }
            TokenTree::Literal(_) => String::new(),
            TokenTree::Punct(sign) => match sign.as_char() {
                ':' if before == ":" => "::".to_owned(),
                sign => sign.to_string(),
            },
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let skipped =
                    matches!(before.as_str(), "." | "'") || before == "$" && name != "crate";
                if before != "::" {
                    paths.extend((!path.is_empty()).then(|| std::mem::take(&mut path)));
                }
                if !skipped && (before != "::" || !path.is_empty()) {
                    path.push(name);
                }
                "name".to_owned()
            }
        };
        if !matches!(text.as_str(), ":" | "::" | "name") {
            paths.extend((!path.is_empty()).then(|| std::mem::take(&mut path)));
        }
        before = text;
    }
    paths.extend((!path.is_empty()).then_some(path));
}
