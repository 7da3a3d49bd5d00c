//! `${NAME}` in a text stands for the environment variable NAME; `$${` for `${` itself.

/// Puts the environment's values in.
///
/// # Errors
/// What is wrong, by the variable's name and never by its value.
pub(crate) fn interpolate(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, variable) = (&rest[..at], &rest[at + 2..]);
        if let Some(literal) = before.strip_suffix('$') {
            result.push_str(literal);
            result.push_str("${");
            rest = variable;
            continue;
        }
        result.push_str(before);
        let Some(end) = variable.find('}') else {
            return Err("has `${` without `}`: write `$${` for the characters themselves".into());
        };
        let name = &variable[..end];
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return Err("has `${…}` with something that is no variable's name".into());
        }
        let value = environment(name)
            .ok_or_else(|| format!("needs the environment variable {name}, which is not set"))?;
        result.push_str(&value);
        rest = &variable[end + 1..];
    }
    result.push_str(rest);
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::interpolate;

    fn with(text: &str) -> Result<String, String> {
        interpolate(text, &|name| (name == "HOST").then(|| "db.example".to_owned()))
    }

    #[test]
    fn variables_are_put_in_wherever_they_stand() {
        assert_eq!(with("postgres://${HOST}/${HOST}").unwrap(), "postgres://db.example/db.example");
        assert_eq!(with("no $variable } here").unwrap(), "no $variable } here");
        assert_eq!(with("$${HOST}").unwrap(), "${HOST}");
    }

    #[test]
    fn what_is_not_set_is_named() {
        assert!(with("${PASSWORD}").unwrap_err().contains("PASSWORD"));
        assert!(with("${HOST").is_err());
        assert!(with("${}").is_err());
        assert!(with("${a b}").is_err());
    }
}
