//! The operators and stages that Cosmos DB for MongoDB (RU) supports.
//!
//! Source: "Supported features and syntax", the same for 4.2, 5.0 and 7.0. What is not listed there is refused.

use mongodb::bson::{Bson, Document};

const STAGES: [&str; 23] = [
    "$addFields",
    "$changeStream",
    "$count",
    "$facet",
    "$geoNear",
    "$group",
    "$limit",
    "$lookup",
    "$match",
    "$merge",
    "$out",
    "$planCacheStats",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$sample",
    "$set",
    "$skip",
    "$sort",
    "$sortByCount",
    "$unset",
    "$unwind",
];

/// Operators of filters, by the headings of the page; `$options` belongs to `$regex`.
const IN_FILTERS: &str = "$or $and $not $nor $exists $type $expr $mod $regex $options $all $elemMatch $size $comment \
    $eq $gt $gte $lt $lte $ne $in $nin \
    $geoWithin $geoIntersects $near $nearSphere $geometry $minDistance $maxDistance";

/// Operators of expressions, by the headings of the page.
const IN_EXPRESSIONS: &str = "$and $not $or \
    $convert $toBool $toDate $toDecimal $toDouble $toInt $toLong $toObjectId $toString \
    $setEquals $setIntersection $setUnion $setDifference $setIsSubset $anyElementTrue $allElementsTrue \
    $cmp $eq $gt $gte $lt $lte $ne $in $nin \
    $abs $add $ceil $divide $exp $floor $ln $log $log10 $mod $multiply $pow $round $sqrt $subtract $trunc \
    $acos $acosh $asin $asinh $atan $atan2 $atanh $cos $cosh $degreesToRadians $radiansToDegrees $sin $sinh $tan $tanh \
    $concat $indexOfBytes $indexOfCP $ltrim $rtrim $trim $split $strLenBytes $strLenCP $strcasecmp $substr $substrBytes $substrCP \
    $toLower $toUpper $regexFind $regexFindAll $regexMatch \
    $arrayElemAt $arrayToObject $concatArrays $filter $indexOfArray $isArray $objectToArray $range $reverseArray $reduce $size $slice $zip \
    $map $let $literal \
    $dayOfYear $dayOfMonth $dayOfWeek $year $month $week $hour $minute $second $millisecond $dateToString $isoDayOfWeek $isoWeek \
    $dateFromParts $dateToParts $dateFromString $isoWeekYear \
    $cond $ifNull $switch $type \
    $sum $avg $first $last $max $min $push $addToSet $stdDevPop $stdDevSamp $mergeObjects";

const IN_PROJECTIONS: &str = "$elemMatch $slice";

const IN_UPDATES: &str = "$inc $mul $rename $setOnInsert $set $unset $min $max $currentDate \
    $addToSet $pop $pullAll $pull $push $pushAll $each $slice $sort $position $bit";

const SYSTEM_VARIABLES: &str = "CLUSTERTIME CURRENT DESCEND KEEP NOW PRUNE REMOVE ROOT";

/// "The API for MongoDB doesn't support comparison expressions that have an array literal in the query."
const COMPARISONS: &str = "$cmp $eq $gt $gte $in $lt $lte $ne";

/// An unsupported part of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unsupported {
    Stage(String),
    Operator(String),
    ArrayLiteral,
}

fn lists(list: &str, name: &str) -> bool {
    list.split(' ').any(|listed| listed == name)
}

/// Returns an operator that is not in the list.
fn unlisted(list: &str, name: &str) -> Option<Unsupported> {
    (name.starts_with('$') && !lists(list, name)).then(|| Unsupported::Operator(name.to_owned()))
}

pub(super) fn in_filter(filter: &Document) -> Option<Unsupported> {
    filter.iter().find_map(|(key, value)| match key.as_str() {
        "$expr" => in_expression(value),
        key => unlisted(IN_FILTERS, key).or_else(|| in_operand(value)),
    })
}

fn in_operand(value: &Bson) -> Option<Unsupported> {
    match value {
        Bson::Document(document) => in_filter(document),
        Bson::Array(values) => values.iter().find_map(in_operand),
        _ => None,
    }
}

fn in_expression(value: &Bson) -> Option<Unsupported> {
    match value {
        Bson::Array(values) => values.iter().find_map(in_expression),
        Bson::String(text) => {
            let variable = text.strip_prefix("$$")?.split('.').next()?;
            // Other variables begin with a small letter.
            let is_system = variable.starts_with(|first: char| first.is_ascii_uppercase());
            (is_system && !lists(SYSTEM_VARIABLES, variable)).then(|| Unsupported::Operator(format!("$${variable}")))
        }
        Bson::Document(document) => document.iter().find_map(|(key, value)| {
            let operands = value.as_array().filter(|_| lists(COMPARISONS, key));
            if operands.is_some_and(|operands| operands.iter().any(|operand| operand.as_array().is_some())) {
                return Some(Unsupported::ArrayLiteral);
            }
            unlisted(IN_EXPRESSIONS, key).or_else(|| if key == "$literal" { None } else { in_expression(value) })
        }),
        _ => None,
    }
}

/// Looks into the projection of a `find`. Expressions in it, which MongoDB has from 4.4 on, are not on the page.
pub(super) fn in_projection(projection: &Document) -> Option<Unsupported> {
    let operators = projection.values().filter_map(Bson::as_document).flat_map(Document::keys);
    operators.map(String::as_str).find_map(|name| unlisted(IN_PROJECTIONS, name))
}

/// Looks into an update. Pipelines as updates are not on the page.
pub(super) fn in_update(update: &Bson) -> Option<Unsupported> {
    match update {
        Bson::Document(update) => update.keys().find_map(|name| unlisted(IN_UPDATES, name)),
        _ => Some(Unsupported::Operator("$update by a pipeline".to_owned())),
    }
}

pub(super) fn in_pipeline<'a>(mut stages: impl Iterator<Item = &'a Document>) -> Option<Unsupported> {
    stages.find_map(|stage| {
        let (name, value) = stage.iter().next()?;
        match (name.as_str(), value) {
            (name, _) if !STAGES.contains(&name) => Some(Unsupported::Stage(name.to_owned())),
            ("$match", Bson::Document(filter)) => in_filter(filter),
            ("$facet", Bson::Document(facets)) => facets
                .values()
                .filter_map(Bson::as_array)
                .find_map(|stages| in_pipeline(stages.iter().filter_map(Bson::as_document))),
            // "An error message that indicates that `let` is not supported appears."
            ("$lookup", Bson::Document(lookup)) if lookup.contains_key("let") => Some(Unsupported::Operator("$let".to_owned())),
            (_, value) => in_expression(value),
        }
    })
}

/// Returns the sorts of a pipeline that an index must serve. The output of a `$group` is sorted in memory.
pub(super) fn sorts(stages: &[Document]) -> Vec<&Document> {
    let is_of_stored =
        |stage: &&Document| !["$group", "$sortByCount", "$count", "$facet"].iter().any(|name| stage.contains_key(name));
    let stored = stages.iter().take_while(is_of_stored);
    stored.filter_map(|stage| stage.get_document("$sort").ok()).collect()
}
