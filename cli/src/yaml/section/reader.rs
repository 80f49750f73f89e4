//! A node as `serde` reads it.

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::error::{Error, Problem, Step};
use crate::yaml::node::{Content, Field, Node};

/// A value to be read.
#[derive(Clone, Copy)]
pub(super) struct Reader<'n> {
    pub(super) node: &'n Node,
}

impl<'n> Reader<'n> {
    fn number<T: std::str::FromStr>(&self, what: &str) -> Result<T, Error> {
        let number = match &self.node.content {
            Content::Scalar { text, plain: true } => text.parse().ok(),
            Content::Scalar { plain: false, .. }
            | Content::Null
            | Content::List(_)
            | Content::Map(_) => None,
        };
        number.ok_or_else(|| self.wrong(what))
    }

    fn wrong(&self, what: &str) -> Error {
        let message = format!("{} where {what} belongs", self.node.describe());
        Error::of(Problem::Other(message)).at(&self.node.place)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $method<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.number::<$type>($what)?;
            visitor.$visit(number).map_err(|error: Error| error.at(&self.node.place))
        }
    )*};
}

impl<'n> Deserializer<'n> for Reader<'n> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let place = &self.node.place;
        match &self.node.content {
            Content::Null => visitor.visit_unit(),
            Content::List(items) => visitor.visit_seq(Items { items, next: 0 }),
            Content::Map(fields) => visitor.visit_map(Entries {
                fields: fields.iter(),
                now: None,
            }),
            Content::Scalar { text, plain: false } => visitor.visit_borrowed_str(text),
            Content::Scalar { text, plain: true } => match text.as_str() {
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                other => {
                    if let Ok(number) = other.parse::<u64>() {
                        visitor.visit_u64(number)
                    } else if let Ok(number) = other.parse::<i64>() {
                        visitor.visit_i64(number)
                    } else if let Ok(number) = other.parse::<f64>() {
                        visitor.visit_f64(number)
                    } else {
                        visitor.visit_borrowed_str(other)
                    }
                }
            },
        }
        .map_err(|error: Error| error.at(place))
    }

    numbers! {
        deserialize_u8 visit_u8 u8, "a number from 0 to 255";
        deserialize_u16 visit_u16 u16, "a number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number from 0 on";
        deserialize_u64 visit_u64 u64, "a whole number from 0 on";
        deserialize_i8 visit_i8 i8, "a whole number";
        deserialize_i16 visit_i16 i16, "a whole number";
        deserialize_i32 visit_i32 i32, "a whole number";
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_f32 visit_f32 f32, "a number";
        deserialize_f64 visit_f64 f64, "a number";
        deserialize_bool visit_bool bool, "true or false";
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.content {
            Content::Scalar { text, .. } => visitor
                .visit_borrowed_str(text)
                .map_err(|error: Error| error.at(&self.node.place)),
            Content::Null | Content::List(_) | Content::Map(_) => Err(self.wrong("text")),
        }
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.content {
            Content::Null => visitor.visit_none(),
            Content::Scalar { .. } | Content::List(_) | Content::Map(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        let fields: &[Field] = match &self.node.content {
            Content::Map(fields) => fields,
            Content::Null => &[],
            Content::Scalar { .. } | Content::List(_) => return Err(self.wrong("a mapping")),
        };
        let entries = Entries {
            fields: fields.iter(),
            now: None,
        };
        visitor
            .visit_map(entries)
            .map_err(|error: Error| error.at(&self.node.place))
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.content {
            Content::List(items) => visitor
                .visit_seq(Items { items, next: 0 })
                .map_err(|error: Error| error.at(&self.node.place)),
            Content::Null | Content::Scalar { .. } | Content::Map(_) => Err(self.wrong("a list")),
        }
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (name, content) = match &self.node.content {
            Content::Scalar { text, .. } => (text.as_str(), None),
            Content::Map(fields) if fields.len() == 1 => {
                (fields[0].key.as_str(), Some(&fields[0].value))
            }
            Content::Null | Content::List(_) | Content::Map(_) => {
                return Err(self.wrong("one word"));
            }
        };
        visitor
            .visit_enum(Word { name, content })
            .map_err(|error: Error| error.at(&self.node.place))
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'n>>
        char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

struct Items<'n> {
    items: &'n [Node],
    next: usize,
}

impl<'n> SeqAccess<'n> for Items<'n> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'n>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(node) = self.items.get(self.next) else {
            return Ok(None);
        };
        let step = Step::Index(self.next);
        self.next += 1;
        seed.deserialize(Reader { node })
            .map(Some)
            .map_err(|error| error.at(&node.place).inside(step))
    }
}

struct Entries<'n> {
    fields: std::slice::Iter<'n, Field>,
    now: Option<&'n Field>,
}

impl<'n> MapAccess<'n> for Entries<'n> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'n>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        self.now = self.fields.next();
        let Some(field) = self.now else {
            return Ok(None);
        };
        let key = de::value::BorrowedStrDeserializer::new(&field.key);
        seed.deserialize(key)
            .map(Some)
            .map_err(|error: Error| error.at(&field.place).inside(Step::Key(field.key.clone())))
    }

    fn next_value_seed<S: DeserializeSeed<'n>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let field = self.now.take().expect("serde asks for a key first");
        seed.deserialize(Reader { node: &field.value })
            .map_err(|error| {
                error
                    .at(&field.value.place)
                    .inside(Step::Key(field.key.clone()))
            })
    }
}

struct Word<'n> {
    name: &'n str,
    content: Option<&'n Node>,
}

impl<'n> EnumAccess<'n> for Word<'n> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'n>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name = de::value::BorrowedStrDeserializer::new(self.name);
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'n> VariantAccess<'n> for Word<'n> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.content {
            None => Ok(()),
            Some(node) => Err(Reader { node }.wrong("nothing")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<T::Value, Error> {
        let inner = |node| seed.deserialize(Reader { node });
        self.content.map(inner).unwrap_or_else(|| {
            let message = format!("{:?} needs a value; write {{{}: …}}", self.name, self.name);
            Err(Error::of(Problem::Other(message)))
        })
    }

    fn tuple_variant<V: Visitor<'n>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        let node = self
            .content
            .ok_or_else(|| de::Error::custom("a list is missing"))?;
        Reader { node }.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let node = self
            .content
            .ok_or_else(|| de::Error::custom("a mapping is missing"))?;
        Reader { node }.deserialize_map(visitor)
    }
}
