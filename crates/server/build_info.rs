//! What INFO says of how this binary was built: facts that `build.rs` has noted.

/// INFO's fields, in Redis's form: zeros where there was no repository.
pub(crate) fn fields() -> Vec<(&'static str, String)> {
    vec![
        ("redis_git_sha1", option_env!("CORELANE_GIT_SHA1").unwrap_or("00000000").to_owned()),
        ("redis_git_dirty", option_env!("CORELANE_GIT_DIRTY").unwrap_or("0").to_owned()),
        ("redis_build_id", env!("CORELANE_BUILD_ID").to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_has_an_id_and_its_commit_is_that_of_the_version() {
        let [sha1, dirty, id] = fields().try_into().unwrap();
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(sha1.1.len() == 8 && is_hex(&sha1.1) && ["0", "1"].contains(&dirty.1.as_str()), "{sha1:?}");
        assert!(id.1.len() == 16 && is_hex(&id.1), "{id:?}");
        let of_the_version = option_env!("CORELANE_COMMIT").is_none_or(|version| version.contains(&sha1.1));
        assert!(of_the_version, "{sha1:?}");
    }
}
