//! Slack's blocks: a layout as the configuration gives it, with templates in its strings. A value
//! can fill a string, and never change the layout.

use crate::jinja::{Context, Form, Template};
use crate::options::Options;
use postroom_core::Outcome;
use serde_json::{Map, Value};

/// A layout.
#[derive(Clone)]
pub(super) struct Blocks(Vec<Node>);

#[derive(Clone)]
enum Node {
    Fixed(Value),
    Text(Box<Template>),
    List(Vec<Node>),
    Table(Vec<(String, Node)>),
}

impl Blocks {
    /// Reads a layout, and records what is wrong with its templates.
    pub(super) fn parse(options: &mut Options, blocks: Vec<Value>) -> Self {
        Self(blocks.into_iter().map(|block| Node::parse(options, block)).collect())
    }

    /// The layout for one message.
    pub(super) fn render(&self, context: &Context) -> Result<Value, Outcome> {
        self.0.iter().map(|node| node.render(context)).collect::<Result<_, _>>().map(Value::Array)
    }
}

impl Node {
    fn parse(options: &mut Options, value: Value) -> Self {
        match value {
            Value::String(text) if text.contains('{') => {
                match Template::parse_option(options, &["blocks"], text, Form::Slack) {
                    Some(template) => Self::Text(Box::new(template)),
                    None => Self::Fixed(Value::Null),
                }
            }
            Value::Array(list) => {
                Self::List(list.into_iter().map(|one| Self::parse(options, one)).collect())
            }
            Value::Object(table) => Self::Table(
                table.into_iter().map(|(key, one)| (key, Self::parse(options, one))).collect(),
            ),
            fixed => Self::Fixed(fixed),
        }
    }

    fn render(&self, context: &Context) -> Result<Value, Outcome> {
        Ok(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(context)?),
            Self::List(list) => {
                Value::Array(list.iter().map(|one| one.render(context)).collect::<Result<_, _>>()?)
            }
            Self::Table(table) => {
                let mut rendered = Map::with_capacity(table.len());
                for (key, node) in table {
                    rendered.insert(key.clone(), node.render(context)?);
                }
                Value::Object(rendered)
            }
        })
    }
}
