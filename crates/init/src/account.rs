//! Who runs the command: `USER[:GROUP]` by name or number, as images write it
//! (OCI image specification, `config.User`), looked up in the guest's
//! `/etc/passwd` and `/etc/group`.

use std::fs;
use std::path::Path;

/// A user as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Numbers of the other groups that list the user.
    pub groups: Vec<u32>,
    /// Home directory, if the user is listed.
    pub home: Option<String>,
}

/// Why an account cannot be found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// No user has this name.
    #[error("the guest's /etc/passwd has no user {0}")]
    User(String),
    /// No group has this name.
    #[error("the guest's /etc/group has no group {0}")]
    Group(String),
}

/// Looks up `who` in the files of a root. A name of another encoding than UTF-8 matches none, and
/// hides no other.
pub fn look_up_below(who: &str, root: &Path) -> Result<Account, AccountError> {
    let text = |name: &str| {
        let bytes = fs::read(root.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    look_up(who, &text("etc/passwd"), &text("etc/group"))
}

/// Looks up `who` in the texts of `/etc/passwd` and `/etc/group`. A number need
/// not be listed; its group is then 0. As with docker, a group that is given
/// replaces all groups that list the user.
pub fn look_up(who: &str, passwd: &str, group: &str) -> Result<Account, AccountError> {
    let (user, of_group) = match who.split_once(':') {
        Some((user, of_group)) => (user, Some(of_group)),
        None => (who, None),
    };
    let user = match user {
        "" => "0",
        user => user,
    };
    let listed = find(passwd, user);
    let field = |number: usize| listed.as_ref().and_then(|line| line.get(number).copied());
    let uid = field(2)
        .unwrap_or(user)
        .parse()
        .map_err(|_| AccountError::User(user.to_owned()))?;
    let of_group = of_group.filter(|name| !name.is_empty());
    let groups = match (of_group, field(0)) {
        (None, Some(name)) => listing(group, name),
        _ => Vec::new(),
    };
    let gid = match of_group {
        None => field(3).and_then(|gid| gid.parse().ok()).unwrap_or(0),
        Some(name) => find(group, name)
            .and_then(|line| line.get(2).copied())
            .unwrap_or(name)
            .parse()
            .map_err(|_| AccountError::Group(name.to_owned()))?,
    };
    Ok(Account {
        uid,
        gid,
        groups,
        home: field(5).filter(|home| !home.is_empty()).map(str::to_owned),
    })
}

/// The groups that list a user among their members.
fn listing(table: &str, user: &str) -> Vec<u32> {
    let number = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let members = fields.get(3)?;
        let is_member = members.split(',').any(|member| member.trim() == user);
        is_member.then(|| fields[2].parse().ok())?
    };
    table.lines().filter_map(number).collect()
}

/// The fields of the line whose name or number is `key`; a name wins.
fn find<'a>(table: &'a str, key: &str) -> Option<Vec<&'a str>> {
    let lines = || {
        table
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
    };
    lines()
        .find(|line| line.first() == Some(&key))
        .or_else(|| lines().find(|line| line.get(2) == Some(&key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:34:w:/var/www:/bin/false\n";
    const GROUP: &str = "root:x:0:\nstaff:x:50:\nssl:x:60:www-data,other\nbroken:x:y:www-data\nlog:x:70:x,www-data\nshort:www-data\n";

    fn ids(who: &str) -> Result<(u32, u32), AccountError> {
        look_up(who, PASSWD, GROUP).map(|account| (account.uid, account.gid))
    }

    #[test]
    fn names_and_numbers_are_looked_up() {
        assert_eq!(ids(""), Ok((0, 0)));
        assert_eq!(ids("www-data"), Ok((33, 34)));
        assert_eq!(ids("33"), Ok((33, 34)));
        assert_eq!(ids("www-data:staff"), Ok((33, 50)));
        assert_eq!(ids("1000"), Ok((1000, 0)));
        assert_eq!(ids("1000:1001"), Ok((1000, 1001)));
    }

    #[test]
    fn an_account_is_found_beside_a_name_of_another_encoding() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        let passwd = b"jose:x:1000:1001:Jos\xe9:/srv/jose:/bin/sh\n";
        fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        let found = look_up_below("1000", root.path()).unwrap();
        assert_eq!(
            (found.gid, found.home.as_deref()),
            (1001, Some("/srv/jose"))
        );
    }

    #[test]
    fn groups_that_list_a_user_come_unless_a_group_is_given() {
        let groups = |who| look_up(who, PASSWD, GROUP).unwrap().groups;
        assert_eq!(groups("www-data"), [60, 70]);
        assert_eq!(groups("33"), [60, 70]);
        assert_eq!(groups("www-data:staff"), [0; 0]);
        assert_eq!(groups("root"), [0; 0]);
        assert_eq!(groups("4711"), [0; 0]);
    }

    #[test]
    fn a_home_comes_with_a_listed_user() {
        let home = |who| look_up(who, PASSWD, GROUP).ok().and_then(|it| it.home);
        assert_eq!(home("www-data").as_deref(), Some("/var/www"));
        assert_eq!(home("4711"), None);
    }

    #[test]
    fn strangers_are_named() {
        assert_eq!(ids("nobody"), Err(AccountError::User("nobody".to_owned())));
        assert_eq!(ids("0:x"), Err(AccountError::Group("x".to_owned())));
    }
}
