//! INFO's text, taken apart.

/// Names and values, in their order.
pub(crate) type Fields = Vec<(String, String)>;

/// The fields by section.
pub(crate) fn sections(info: &str) -> Vec<(String, Fields)> {
    let mut sections: Vec<(String, Fields)> = Vec::new();
    for line in info.lines() {
        if let Some(name) = line.strip_prefix("# ") {
            sections.push((name.to_owned(), Vec::new()));
        } else if let (Some((name, value)), Some((_, fields))) = (line.split_once(':'), sections.last_mut()) {
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    sections
}

/// `name=value` parts of a line.
pub(crate) fn parts(line: &str, separator: char) -> Fields {
    let pairs = line.split(separator).filter_map(|part| part.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The value of a field; empty where there is none of that name.
pub(crate) fn field<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// What a server calls itself, with its version, by the fields of the section `Server`.
pub(crate) fn server_name(server: &Fields) -> String {
    let known = ["corelane", "valkey", "redis"].into_iter().find_map(|name| {
        let version = field(server, &format!("{name}_version"));
        (!version.is_empty()).then(|| format!("{name} {version}"))
    });
    known.unwrap_or_else(|| "a server without a version".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_taken_apart() {
        let info = "# Server\r\nredis_version:7.2.4\r\n\r\n# Shards\r\nshard0:cpu=0,keys=7\r\n";
        let sections = sections(info);
        assert_eq!(sections.len(), 2);
        assert_eq!(field(&sections[0].1, "redis_version"), "7.2.4");
        assert_eq!(field(&parts(&sections[1].1[0].1, ','), "keys"), "7");
        assert_eq!(server_name(&sections[0].1), "redis 7.2.4");
        assert_eq!(server_name(&sections[1].1), "a server without a version");
    }
}
