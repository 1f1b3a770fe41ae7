//! The comparisons in an expression of `$expr`, where values of different types are ordered by their types.

use bson::{Bson, Document, doc};

use super::super::value_type::{ValueType, is_any_value};

/// A comparison of an expression that depends on documents with a value of a known type.
pub(super) struct Compared {
    /// The value, if it is written in the filter.
    pub value: Option<Bson>,
    pub value_type: ValueType,
    /// Whether the expression can have a value of the type at all.
    pub is_possible: bool,
    /// Expression that names the paths of the other side, the path of the value last.
    pub reads: Bson,
    /// Expression that is true where the other side has a value of the type.
    pub having: Bson,
    /// Expression that is true where the other side has any value.
    pub having_any: Bson,
}

/// Knowledge of an expression's value without a document.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    /// Its type, and the value itself if it is written in the filter.
    Type(ValueType, Option<Bson>),
    /// That it is null, or of a type that tells nothing.
    Nothing,
    /// Nothing before a document is looked at.
    Depends,
}

/// A level around an expression that binds variables.
#[derive(Clone)]
enum Around {
    Let(Document),
    /// Each element of an array, under a name.
    Elements {
        input: Bson,
        name: String,
    },
}

/// A walk through an expression.
pub(super) struct Expressions {
    around: Vec<Around>,
    found: Vec<Compared>,
}

impl Expressions {
    /// Returns the comparisons of an expression, in their order.
    pub(super) fn of(expression: &Bson) -> Vec<Compared> {
        let mut walk = Self { around: Vec::new(), found: Vec::new() };
        walk.expression(expression);
        walk.found
    }

    fn expression(&mut self, expression: &Bson) {
        match expression {
            Bson::Array(parts) => parts.iter().for_each(|part| self.expression(part)),
            Bson::Document(parts) => parts.iter().for_each(|(operator, operand)| self.operator(operator, operand)),
            _ => {}
        }
    }

    fn operator(&mut self, operator: &str, operand: &Bson) {
        match (operator, operand) {
            ("$literal" | "$const", _) => {}
            ("$let", Bson::Document(parts)) => {
                let variables = parts.get_document("vars").cloned().unwrap_or_default();
                variables.iter().for_each(|(_, value)| self.expression(value));
                self.within(Around::Let(variables), parts.get("in"));
            }
            ("$map" | "$filter" | "$reduce", Bson::Document(parts)) => {
                let input = parts.get("input").cloned().unwrap_or(Bson::Null);
                self.expression(&input);
                let name = parts.get_str("as").unwrap_or("this").to_owned();
                self.within(Around::Elements { input, name }, parts.get("in").or_else(|| parts.get("cond")));
            }
            ("$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte" | "$cmp", Bson::Array(sides)) => {
                if let [left, right] = sides.as_slice() {
                    self.sides(left, right);
                    self.sides(right, left);
                }
                self.expression(operand);
            }
            ("$in", Bson::Array(sides)) => {
                if let [value, list] = sides.as_slice() {
                    self.list(value, list);
                }
                self.expression(operand);
            }
            ("$indexOfArray", Bson::Array(sides)) => {
                if let [list, value, ..] = sides.as_slice() {
                    self.list(value, list);
                }
                self.expression(operand);
            }
            ("$setIsSubset" | "$setEquals" | "$setIntersection" | "$setDifference", Bson::Array(sets)) => {
                for set in sets {
                    let values = elements(set).into_iter().flatten();
                    let others = || sets.iter().filter(|other| elements(other).is_none());
                    values.for_each(|value| others().for_each(|other| self.list(value, other)));
                }
                self.expression(operand);
            }
            _ => self.expression(operand),
        }
    }

    fn within(&mut self, around: Around, body: Option<&Bson>) {
        self.around.push(around);
        body.iter().for_each(|body| self.expression(body));
        self.around.pop();
    }

    /// Adds the comparison of a side whose type is known with another.
    fn sides(&mut self, known: &Bson, other: &Bson) {
        match (known, other) {
            // The values inside a value of the filter are compared as well.
            (Bson::Array(known), Bson::Array(other)) => {
                return known.iter().zip(other).for_each(|(known, other)| self.sides(known, other));
            }
            (Bson::Document(inside), Bson::String(path))
                if path.starts_with('$') && !inside.keys().any(|key| key.starts_with('$')) =>
            {
                inside.iter().for_each(|(name, value)| self.sides(value, &format!("{path}.{name}").into()));
            }
            _ => {}
        }
        let Known::Type(value_type, value) = self.known(known) else { return };
        match self.known(other) {
            Known::Depends => self.add(value, value_type, true, other),
            Known::Type(another, of_other) if another != value_type && of_other.is_none() => {
                self.add(value, value_type, false, other);
            }
            _ => {}
        }
    }

    /// Adds the comparisons of a value with the values of a list.
    fn list(&mut self, value: &Bson, list: &Bson) {
        if let Some(values) = elements(list) {
            for element in values {
                self.sides(element, value);
                self.sides(value, element);
            }
            return;
        }
        let Known::Type(value_type, written) = self.known(value) else { return };
        if self.known(list) != Known::Depends {
            return;
        }
        let array = doc! { "$cond": [{ "$isArray": [list] }, list, []] };
        let any = |of_element: Bson| {
            Bson::from(doc! { "$anyElementTrue": [{ "$map": { "input": &array, "as": "sweeperElement", "in": of_element } }] })
        };
        let element = Bson::from("$$sweeperElement");
        self.enter(Compared {
            value: written,
            value_type,
            is_possible: true,
            reads: list.clone(),
            having: any(value_type.expression(&element)),
            having_any: any(is_any_value(&element)),
        });
    }

    fn add(&mut self, value: Option<Bson>, value_type: ValueType, is_possible: bool, other: &Bson) {
        let other = self.sure(other);
        self.enter(Compared {
            value,
            value_type,
            is_possible,
            reads: other.clone(),
            having: value_type.expression(&other),
            having_any: is_any_value(&other),
        });
    }

    /// Adds a comparison with the variables around it.
    fn enter(&mut self, compared: Compared) {
        // The value so far of `$reduce` is no value of a document.
        if is_named(&compared.having, "$$value") {
            return;
        }
        let reads = self.around.iter().rev().fold(compared.reads, |inner, around| match around {
            Around::Let(variables) => doc! { "$let": { "vars": variables, "in": inner } }.into(),
            Around::Elements { input, name } => doc! { "$map": { "input": input, "as": name, "in": inner } }.into(),
        });
        let wrapped = |expression: Bson| {
            self.around.iter().rev().fold(expression, |inner, around| match around {
                Around::Let(variables) => doc! { "$let": { "vars": variables, "in": inner } }.into(),
                Around::Elements { input, name } => {
                    let array = doc! { "$cond": [{ "$isArray": [input] }, input, []] };
                    doc! { "$anyElementTrue": [{ "$map": { "input": array, "as": name, "in": inner } }] }.into()
                }
            })
        };
        let (having, having_any) = (wrapped(compared.having), wrapped(compared.having_any));
        self.found.push(Compared { reads, having, having_any, ..compared });
    }

    /// Returns the form of an expression for the look at its types. In that form no values stand in for the values of a
    /// document, and there is no error where a document has another type than the operator takes.
    fn sure(&self, expression: &Bson) -> Bson {
        let Bson::Document(parts) = expression else { return expression.clone() };
        let Some((operator, operand)) = parts.iter().next() else { return expression.clone() };
        let of_document = |part: &Bson| match self.known(part) {
            Known::Depends => self.sure(part),
            Known::Type(..) | Known::Nothing => Bson::Null,
        };
        match (operator.as_str(), operand) {
            ("$ifNull", Bson::Array(parts)) => {
                let parts: Vec<Bson> = parts.iter().map(of_document).chain([Bson::Null]).collect();
                doc! { "$ifNull": parts }.into()
            }
            ("$cond", Bson::Array(parts)) if parts.len() == 3 => {
                doc! { "$cond": [&parts[0], of_document(&parts[1]), of_document(&parts[2])] }.into()
            }
            ("$cond", Bson::Document(parts)) => {
                let part = |name| parts.get(name).map_or(Bson::Null, of_document);
                let condition = parts.get("if").cloned().unwrap_or(Bson::Null);
                doc! { "$cond": { "if": condition, "then": part("then"), "else": part("else") } }.into()
            }
            ("$arrayElemAt" | "$first" | "$last", operand) => {
                let array = match operand {
                    Bson::Array(parts) => parts.first().cloned().unwrap_or(Bson::Null),
                    operand => operand.clone(),
                };
                doc! { "$cond": [{ "$isArray": [array] }, expression, Bson::Null] }.into()
            }
            ("$add" | "$subtract", Bson::Array(parts)) => {
                let fits = ["int", "long", "double", "decimal", "date", "null", "undefined", "missing"];
                let fits: Vec<Bson> = parts.iter().map(|part| doc! { "$in": [{ "$type": part }, &fits[..]] }.into()).collect();
                doc! { "$cond": [{ "$and": fits }, expression, Bson::Null] }.into()
            }
            _ => expression.clone(),
        }
    }

    fn known(&self, expression: &Bson) -> Known {
        match expression {
            Bson::String(text) if text.starts_with("$$") => self.variable(&text[2..]),
            Bson::String(text) if text.starts_with('$') => Known::Depends,
            Bson::Document(parts) => match parts.iter().next() {
                Some((operator, operand)) if operator.starts_with('$') => self.result(operator, operand),
                _ => Known::Type(ValueType::Object, Some(expression.clone())),
            },
            value => written(value),
        }
    }

    fn variable(&self, name: &str) -> Known {
        match name {
            "NOW" => return Known::Type(ValueType::Date, None),
            "CLUSTER_TIME" => return Known::Type(ValueType::Timestamp, None),
            _ => {}
        }
        // The nearest variable of a name is the one that counts; its value is an expression of the levels around it.
        for (level, around) in self.around.iter().enumerate().rev() {
            match around {
                Around::Let(variables) if variables.contains_key(name) => {
                    let outside = Self { around: self.around[..level].to_vec(), found: Vec::new() };
                    return variables.get(name).map_or(Known::Depends, |value| outside.known(value));
                }
                Around::Elements { name: bound, .. } if bound == name => return Known::Depends,
                _ => {}
            }
        }
        Known::Depends
    }

    /// Returns what is known of an operator's result.
    ///
    /// Source: MongoDB manual, "Aggregation Operators".
    fn result(&self, operator: &str, operand: &Bson) -> Known {
        let parts = operand.as_array().map(Vec::as_slice).unwrap_or_default();
        let types = || {
            parts.iter().map(|part| self.known(part)).map(|known| if let Known::Type(of, _) = known { Some(of) } else { None })
        };
        let of = |value_type| Known::Type(value_type, None);
        match operator {
            "$literal" | "$const" => written(operand),
            "$add" if types().any(|of| of == Some(ValueType::Date)) => of(ValueType::Date),
            "$subtract" => match types().collect::<Vec<_>>().as_slice() {
                [Some(ValueType::Date), Some(ValueType::Number)] => of(ValueType::Date),
                [_, Some(ValueType::Date)] | [Some(ValueType::Number), _] => of(ValueType::Number),
                _ => Known::Depends,
            },
            "$cond" => {
                let branches: Vec<Option<&Bson>> = match operand {
                    Bson::Document(parts) => vec![parts.get("then"), parts.get("else")],
                    _ => vec![parts.get(1), parts.get(2)],
                };
                match branches.into_iter().map(|branch| branch.map(|branch| self.known(branch))).collect::<Vec<_>>().as_slice() {
                    [Some(Known::Type(one, _)), Some(Known::Type(other, _))] if one == other => of(*one),
                    _ => Known::Depends,
                }
            }
            "$convert" => match operand.as_document().and_then(|parts| parts.get_str("to").ok()) {
                Some("date") => of(ValueType::Date),
                Some("string") => of(ValueType::String),
                Some("objectId") => of(ValueType::ObjectId),
                Some("bool") => of(ValueType::Boolean),
                Some("int" | "long" | "double" | "decimal") => of(ValueType::Number),
                _ => Known::Depends,
            },
            _ => always(operator).map_or(Known::Depends, of),
        }
    }
}

/// Returns the type that an operator's result always has, null aside.
fn always(operator: &str) -> Option<ValueType> {
    Some(match operator {
        "$size" | "$strLenCP" | "$strLenBytes" | "$year" | "$month" | "$dayOfMonth" | "$dayOfWeek" | "$dayOfYear" | "$hour"
        | "$minute" | "$second" | "$millisecond" | "$week" | "$isoWeek" | "$isoWeekYear" | "$isoDayOfWeek" | "$toInt"
        | "$toLong" | "$toDouble" | "$toDecimal" | "$indexOfArray" | "$indexOfBytes" | "$indexOfCP" | "$cmp" | "$strcasecmp"
        | "$mod" | "$multiply" | "$divide" | "$abs" | "$ceil" | "$floor" | "$round" | "$trunc" | "$sqrt" | "$pow" | "$exp"
        | "$ln" | "$log" | "$log10" | "$avg" | "$sum" | "$stdDevPop" | "$stdDevSamp" | "$bsonSize" | "$binarySize"
        | "$dateDiff" | "$tsSecond" | "$tsIncrement" => ValueType::Number,
        "$concat" | "$toLower" | "$toUpper" | "$toString" | "$substr" | "$substrCP" | "$substrBytes" | "$dateToString"
        | "$type" | "$trim" | "$ltrim" | "$rtrim" | "$replaceOne" | "$replaceAll" => ValueType::String,
        "$toDate" | "$dateFromString" | "$dateFromParts" | "$dateAdd" | "$dateSubtract" | "$dateTrunc" => ValueType::Date,
        "$toObjectId" => ValueType::ObjectId,
        "$eq" | "$ne" | "$gt" | "$gte" | "$lt" | "$lte" | "$and" | "$or" | "$not" | "$in" | "$isArray" | "$isNumber"
        | "$toBool" | "$regexMatch" | "$anyElementTrue" | "$allElementsTrue" | "$setEquals" | "$setIsSubset" => {
            ValueType::Boolean
        }
        "$map" | "$filter" | "$split" | "$range" | "$concatArrays" | "$setUnion" | "$setIntersection" | "$setDifference"
        | "$objectToArray" | "$slice" | "$reverseArray" | "$sortArray" | "$zip" | "$regexFindAll" => ValueType::Array,
        "$mergeObjects" | "$arrayToObject" | "$dateToParts" => ValueType::Object,
        _ => return None,
    })
}

/// Returns what is known of a value that is written in the filter.
fn written(value: &Bson) -> Known {
    // A regular expression in an expression is a value as any other.
    ValueType::of(value).map_or(Known::Nothing, |of| Known::Type(of, Some(value.clone())))
}

/// Returns the elements of a list that is written in the filter.
fn elements(list: &Bson) -> Option<&[Bson]> {
    match list {
        Bson::Array(elements) => Some(elements),
        Bson::Document(parts) => match parts.get("$literal") {
            Some(Bson::Array(elements)) => Some(elements),
            _ => None,
        },
        _ => None,
    }
}

/// Whether an expression names a variable.
fn is_named(expression: &Bson, variable: &str) -> bool {
    match expression {
        Bson::String(text) => text.strip_prefix(variable).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        Bson::Array(parts) => parts.iter().any(|part| is_named(part, variable)),
        Bson::Document(parts) => parts.iter().any(|(_, part)| is_named(part, variable)),
        _ => false,
    }
}
