//! Aggregation expressions, compiled once per command. An operator that is not known is an error.

use std::borrow::Cow;
use std::cmp::Ordering;

use bson::{Bson, DateTime, Document};

use crate::failure::Failure;
use crate::functions::Function;
use crate::order::compare_values;
use crate::value::{Value, is_nothing, is_true, or_null};

/// An expression whose names are resolved.
#[derive(Debug)]
pub(crate) enum Expression {
    /// `None` for `$$REMOVE`.
    Constant(Option<Bson>),
    /// A path below the document; empty for the document itself.
    Path(Vec<String>),
    /// A path below the variable that so many others hide.
    Variable {
        depth: usize,
        path: Vec<String>,
    },
    Document(Vec<(String, Expression)>),
    Array(Vec<Expression>),
    Compared {
        is: fn(Ordering) -> bool,
        operands: Box<[Expression; 2]>,
    },
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Switch {
        branches: Vec<(Expression, Expression)>,
        default: Option<Box<Expression>>,
    },
    Let {
        values: Vec<Expression>,
        body: Box<Expression>,
    },
    Filter {
        input: Box<Expression>,
        condition: Box<Expression>,
    },
    Map {
        input: Box<Expression>,
        body: Box<Expression>,
    },
    Call {
        function: Function,
        operands: Vec<Expression>,
    },
}

/// The variables of a place in an expression, the innermost first.
#[derive(Clone, Copy)]
struct Scope<'s, 'a> {
    innermost: Option<&'s Variable<'s, 'a>>,
}

struct Variable<'s, 'a> {
    value: Value<'a>,
    outer: Scope<'s, 'a>,
}

impl Expression {
    /// Compiles an expression. `now` is the value of `$$NOW`.
    pub(crate) fn new(expression: &Bson, now: DateTime) -> Result<Self, Failure> {
        Compiler { now, names: Vec::new() }.expression(expression)
    }

    /// Evaluates the expression on a document.
    pub(crate) fn evaluate<'a>(&'a self, root: &'a Bson) -> Result<Value<'a>, Failure> {
        self.value(root, Scope { innermost: None })
    }

    fn value<'a>(&'a self, root: &'a Bson, scope: Scope<'_, 'a>) -> Result<Value<'a>, Failure> {
        Ok(match self {
            Self::Constant(constant) => constant.as_ref().map(Cow::Borrowed),
            Self::Path(path) => below(Some(Cow::Borrowed(root)), path),
            Self::Variable { depth, path } => {
                let mut variable = scope.innermost.expect("a variable");
                for _ in 0..*depth {
                    variable = variable.outer.innermost.expect("a variable");
                }
                match path.as_slice() {
                    [] => variable.value.clone(),
                    path => below(variable.value.clone(), path),
                }
            }
            Self::Document(fields) => {
                let mut document = Document::new();
                for (name, expression) in fields {
                    if let Some(value) = expression.value(root, scope)? {
                        document.insert(name, value.into_owned());
                    }
                }
                Some(Cow::Owned(document.into()))
            }
            Self::Array(items) => {
                let items = items.iter().map(|item| Ok(or_null(item.value(root, scope)?)));
                Some(Cow::Owned(Bson::Array(items.collect::<Result<_, Failure>>()?)))
            }
            Self::Compared { is, operands } => {
                let (a, b) = (operands[0].value(root, scope)?, operands[1].value(root, scope)?);
                boolean(is(compare_values(a.as_deref(), b.as_deref())))
            }
            Self::All(operands) => {
                for operand in operands {
                    if !is_true(operand.value(root, scope)?.as_deref()) {
                        return Ok(boolean(false));
                    }
                }
                boolean(true)
            }
            Self::Any(operands) => {
                for operand in operands {
                    if is_true(operand.value(root, scope)?.as_deref()) {
                        return Ok(boolean(true));
                    }
                }
                boolean(false)
            }
            Self::Switch { branches, default } => {
                for (case, then) in branches {
                    if is_true(case.value(root, scope)?.as_deref()) {
                        return then.value(root, scope);
                    }
                }
                match default {
                    Some(default) => return default.value(root, scope),
                    None => return Err(Failure::new(40_066, "$switch could not find a matching branch")),
                }
            }
            Self::Let { values, body } => {
                let values = values.iter().map(|value| value.value(root, scope)).collect::<Result<Vec<_>, _>>()?;
                return nested(values, scope, &mut |inner| body.value(root, inner));
            }
            Self::Filter { input, condition } => match input.value(root, scope)? {
                None => Some(Cow::Owned(Bson::Null)),
                Some(input) if is_nothing(Some(&input)) => Some(Cow::Owned(Bson::Null)),
                Some(input) => {
                    let mut kept = Vec::new();
                    for item in items(input, 28_651)? {
                        let variable = Variable { value: Some(item.clone()), outer: scope };
                        if is_true(condition.value(root, Scope { innermost: Some(&variable) })?.as_deref()) {
                            kept.push(item.into_owned());
                        }
                    }
                    Some(Cow::Owned(Bson::Array(kept)))
                }
            },
            Self::Map { input, body } => match input.value(root, scope)? {
                None => Some(Cow::Owned(Bson::Null)),
                Some(input) if is_nothing(Some(&input)) => Some(Cow::Owned(Bson::Null)),
                Some(input) => {
                    let mut mapped = Vec::new();
                    for item in items(input, 16_883)? {
                        let variable = Variable { value: Some(item), outer: scope };
                        mapped.push(or_null(body.value(root, Scope { innermost: Some(&variable) })?));
                    }
                    Some(Cow::Owned(Bson::Array(mapped)))
                }
            },
            Self::Call { function, operands } => {
                let values = operands.iter().map(|operand| operand.value(root, scope)).collect::<Result<Vec<_>, _>>()?;
                return function.call(values);
            }
        })
    }
}

/// Evaluates with further variables, the first of which is the outermost.
fn nested<'a>(
    mut values: Vec<Value<'a>>,
    scope: Scope<'_, 'a>,
    body: &mut dyn FnMut(Scope<'_, 'a>) -> Result<Value<'a>, Failure>,
) -> Result<Value<'a>, Failure> {
    if values.is_empty() {
        return body(scope);
    }
    let variable = Variable { value: values.remove(0), outer: scope };
    nested(values, Scope { innermost: Some(&variable) }, body)
}

fn boolean<'a>(value: bool) -> Value<'a> {
    Some(Cow::Owned(value.into()))
}

/// Returns the items of an array.
fn items(input: Cow<'_, Bson>, code: i32) -> Result<Vec<Cow<'_, Bson>>, Failure> {
    match input {
        Cow::Borrowed(Bson::Array(items)) => Ok(items.iter().map(Cow::Borrowed).collect()),
        Cow::Owned(Bson::Array(items)) => Ok(items.into_iter().map(Cow::Owned).collect()),
        _ => Err(Failure::new(code, "input to $filter or $map must be an array")),
    }
}

/// Returns the value at a path below a value. Below an array it is the array of what is found in its documents.
fn below<'a>(value: Value<'a>, path: &[String]) -> Value<'a> {
    let Some((name, rest)) = path.split_first() else { return value };
    match value? {
        Cow::Borrowed(Bson::Document(document)) => below(document.get(name).map(Cow::Borrowed), rest),
        Cow::Owned(Bson::Document(mut document)) => below(document.remove(name).map(Cow::Owned), rest),
        array if matches!(*array, Bson::Array(_)) => {
            let of_documents = array.as_array()?.iter().filter(|item| matches!(item, Bson::Document(_)));
            let found = of_documents.filter_map(|item| below(Some(Cow::Borrowed(item)), path).map(Cow::into_owned)).collect();
            Some(Cow::Owned(Bson::Array(found)))
        }
        _ => None,
    }
}

/// Replaces an expression of constants by its value, as the server does before it looks at a document.
///
/// Errors: the expression fails, whether there is a document or not.
fn folded(expression: Expression) -> Result<Expression, Failure> {
    let is_constant = |operand: &Expression| matches!(operand, Expression::Constant(_));
    let folds = match &expression {
        Expression::Compared { operands, .. } => operands.iter().all(is_constant),
        Expression::All(operands) | Expression::Any(operands) | Expression::Call { operands, .. } => {
            operands.iter().all(is_constant)
        }
        Expression::Switch { branches, default } => {
            branches.iter().all(|(case, then)| is_constant(case) && is_constant(then))
                && default.as_deref().is_some_and(is_constant)
        }
        _ => false,
    };
    if !folds {
        return Ok(expression);
    }
    let value = expression.evaluate(&Bson::Null)?.map(Cow::into_owned);
    Ok(Expression::Constant(value))
}

struct Compiler {
    now: DateTime,
    /// The variables, the outermost first.
    names: Vec<String>,
}

impl Compiler {
    fn expression(&mut self, expression: &Bson) -> Result<Expression, Failure> {
        match expression {
            Bson::String(path) if path.starts_with('$') => self.path(path),
            Bson::Document(document) => match document.iter().next() {
                Some((operator, operand)) if operator.starts_with('$') => {
                    if document.len() > 1 {
                        return Err(Failure::new(15_983, "an expression must have exactly one field"));
                    }
                    folded(self.operator(operator, operand)?)
                }
                _ => {
                    let fields = document.iter().map(|(name, value)| Ok((name.clone(), self.expression(value)?)));
                    Ok(Expression::Document(fields.collect::<Result<_, Failure>>()?))
                }
            },
            Bson::Array(items) => Ok(Expression::Array(self.all(items)?)),
            constant => Ok(Expression::Constant(Some(constant.clone()))),
        }
    }

    fn all(&mut self, items: &[Bson]) -> Result<Vec<Expression>, Failure> {
        items.iter().map(|item| self.expression(item)).collect()
    }

    fn path(&self, path: &str) -> Result<Expression, Failure> {
        let names = |path: &str| -> Vec<String> { path.split('.').map(str::to_owned).collect() };
        let Some(path) = path.strip_prefix("$$") else {
            let path = &path[1..];
            if path.is_empty() {
                return Err(Failure::new(16_872, "'$' by itself is not a valid FieldPath"));
            }
            return Ok(Expression::Path(names(path)));
        };
        let mut path = names(path);
        let variable = path.remove(0);
        Ok(match variable.as_str() {
            "ROOT" | "CURRENT" => Expression::Path(path),
            "NOW" if path.is_empty() => Expression::Constant(Some(self.now.into())),
            "REMOVE" if path.is_empty() => Expression::Constant(None),
            name => match self.names.iter().rev().position(|known| known == name) {
                Some(depth) => Expression::Variable { depth, path },
                None => return Err(Failure::new(17_276, format!("Use of undefined variable: {name}"))),
            },
        })
    }

    /// Compiles an expression in which further variables have names.
    fn with(&mut self, names: &[&str], body: &Bson) -> Result<Box<Expression>, Failure> {
        let outer = self.names.len();
        self.names.extend(names.iter().map(|name| (*name).to_owned()));
        let compiled = self.expression(body);
        self.names.truncate(outer);
        compiled.map(Box::new)
    }

    fn operator(&mut self, operator: &str, operand: &Bson) -> Result<Expression, Failure> {
        let part = |name: &str| {
            let part = operand.as_document().and_then(|operand| operand.get(name));
            part.ok_or_else(|| Failure::bad(format!("missing '{name}' parameter to {operator}")))
        };
        let operands = |compiler: &mut Self| match operand {
            Bson::Array(items) => compiler.all(items),
            one => Ok(vec![compiler.expression(one)?]),
        };
        let mut compared = |is: fn(Ordering) -> bool| {
            let operands: Result<[Expression; 2], _> = operands(self)?.try_into();
            let operands = operands.map_err(|_| Failure::new(16_020, format!("{operator} takes exactly 2 arguments")))?;
            Ok(Expression::Compared { is, operands: Box::new(operands) })
        };
        match operator {
            "$literal" | "$const" => Ok(Expression::Constant(Some(operand.clone()))),
            "$eq" => compared(Ordering::is_eq),
            "$ne" => compared(Ordering::is_ne),
            "$lt" => compared(Ordering::is_lt),
            "$lte" => compared(Ordering::is_le),
            "$gt" => compared(Ordering::is_gt),
            "$gte" => compared(Ordering::is_ge),
            "$and" => Ok(Expression::All(operands(self)?)),
            "$or" => Ok(Expression::Any(operands(self)?)),
            "$cond" => {
                let [case, then, otherwise] = match operand {
                    Bson::Array(items) => <[Bson; 3]>::try_from(items.clone())
                        .map_err(|_| Failure::new(16_020, "$cond takes exactly 3 arguments"))?,
                    _ => [part("if")?.clone(), part("then")?.clone(), part("else")?.clone()],
                };
                let branches = vec![(self.expression(&case)?, self.expression(&then)?)];
                Ok(Expression::Switch { branches, default: Some(Box::new(self.expression(&otherwise)?)) })
            }
            "$switch" => {
                let mut branches = Vec::new();
                for branch in part("branches")?.as_array().ok_or_else(|| Failure::new(40_061, "branches must be an array"))? {
                    let of = |name: &str| {
                        let part = branch.as_document().and_then(|branch| branch.get(name));
                        part.ok_or_else(|| Failure::new(40_067, format!("$switch requires each branch have a '{name}'")))
                    };
                    branches.push((self.expression(of("case")?)?, self.expression(of("then")?)?));
                }
                let default = operand.as_document().and_then(|operand| operand.get("default"));
                Ok(Expression::Switch {
                    branches,
                    default: default.map(|default| self.expression(default).map(Box::new)).transpose()?,
                })
            }
            "$let" => {
                let vars = part("vars")?.as_document().ok_or_else(|| Failure::new(16_874, "vars must be an object"))?;
                let values = vars.values().map(|value| self.expression(value)).collect::<Result<_, _>>()?;
                let names: Vec<&str> = vars.keys().map(String::as_str).collect();
                Ok(Expression::Let { values, body: self.with(&names, part("in")?)? })
            }
            "$filter" | "$map" => {
                let input = Box::new(self.expression(part("input")?)?);
                let name = operand.as_document().and_then(|operand| operand.get_str("as").ok()).unwrap_or("this");
                Ok(match operator {
                    "$filter" => Expression::Filter { input, condition: self.with(&[name], part("cond")?)? },
                    _ => Expression::Map { input, body: self.with(&[name], part("in")?)? },
                })
            }
            "$dateFromString" if *part("onError")? == Bson::Null => {
                let mut operands = vec![self.expression(part("dateString")?)?];
                operands.extend(part("format").ok().map(|format| self.expression(format)).transpose()?);
                Ok(Expression::Call { function: Function::DateFromString, operands })
            }
            "$dateToString" => {
                let operands = vec![self.expression(part("date")?)?, self.expression(part("format")?)?];
                Ok(Expression::Call { function: Function::DateToString, operands })
            }
            "$convert" if *part("onError")? == Bson::Null && *part("to")? == "long".into() => {
                let operands = vec![self.expression(part("input")?)?];
                Ok(Expression::Call { function: Function::LongOrNull, operands })
            }
            _ => {
                let function = Function::named(operator)
                    .ok_or_else(|| Failure::new(168, format!("Unrecognized expression '{operator}'")))?;
                let operands = operands(self)?;
                if !function.takes(operands.len()) {
                    return Err(Failure::new(16_020, format!("{operator} takes another number of arguments")));
                }
                Ok(Expression::Call { function, operands })
            }
        }
    }
}
