use core::net::Ipv4Addr;

use super::super::Setup;

#[test]
fn the_word_for_a_static_address() {
    let Some(Setup::Static { address, gateway }) = Setup::from_word("192.168.7.2/24,192.168.7.1")
    else {
        panic!("a good word");
    };
    assert_eq!(address.address(), Ipv4Addr::new(192, 168, 7, 2));
    assert_eq!(address.prefix_len(), 24);
    assert_eq!(gateway, Some(Ipv4Addr::new(192, 168, 7, 1)));
    assert!(Setup::from_word("10.0.0.1/8").is_some());
    for word in [
        "",
        "10.0.0.1",
        "10.0.0.1/33",
        "10.0.0.1/-1",
        "10.0.0.1/24,",
        "10.0.0.1/24,x",
        "0.0.0.0/0",
        "255.255.255.255/32",
        "127.0.0.1/8",
        "224.0.0.1/4",
        "::1/64",
    ] {
        assert_eq!(Setup::from_word(word), None, "{word}");
    }
}
