//! Methods by name.

use crate::ConfigError;

/// A few methods by their paths, `/package.Service/Method`, and what is set for each. Found without hashing.
#[derive(Clone, Debug)]
pub struct Methods<T>(Vec<(Box<str>, T)>);

impl<T> Default for Methods<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Methods<T> {
    /// Sets it for one more method, or anew. `field` names the setting in the error.
    ///
    /// # Errors
    /// A name that is no method's path.
    pub fn set(&mut self, field: &'static str, method: &str, value: T) -> Result<(), ConfigError> {
        if !is_method(method) {
            let form = "/package.Service/Method";
            return Err(ConfigError::new(field, method, form));
        }
        match self.find(method) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (method.into(), value)),
        }
        Ok(())
    }

    /// What is set for this method, if something is.
    #[inline]
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&T> {
        self.find(path).ok().map(|at| &self.0[at].1)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(method, value)| (&**method, value))
    }

    fn find(&self, path: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(method, _)| (**method).cmp(path))
    }
}

/// Whether it is the path of a gRPC method: a slash, a service, a slash, a method.
fn is_method(name: &str) -> bool {
    let part = |part: &str| {
        let fits = |byte: u8| byte.is_ascii_graphic() && !b"/?#".contains(&byte);
        !part.is_empty() && part.bytes().all(fits)
    };
    let parts = name.strip_prefix('/').and_then(|rest| rest.split_once('/'));
    parts.is_some_and(|(service, method)| part(service) && part(method))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T2, R1: a method's name is a path with two parts; anything else is an error that names it.
    #[test]
    fn names() {
        let mut methods = Methods::default();
        for (value, good) in ["/a.B/C", "/B/c_1", "/a-b.C/D"].into_iter().enumerate() {
            methods.set("f", good, value).unwrap();
            assert_eq!(methods.get(good), Some(&value));
        }
        methods.set("f", "/B/c_1", 9).unwrap();
        assert_eq!(methods.get("/B/c_1"), Some(&9));
        assert_eq!(methods.get("/B/c_2"), None);
        for bad in [
            "", "/", "//", "a.B/C", "/a.B", "/a.B/", "//C", "/a/b/c", "/a b/C", "/a/C?x", "/ä/C",
        ] {
            let error = methods.set("retry.idempotent", bad, 0).unwrap_err();
            assert_eq!(error.field(), "retry.idempotent");
            assert_eq!(error.value(), format!("{bad:?}"));
        }
    }
}
