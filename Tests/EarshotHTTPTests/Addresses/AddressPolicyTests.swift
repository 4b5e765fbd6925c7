import EarshotCore
import EarshotHTTP
import Testing

/// Address policies: presets, rules, verdicts and their text.
@Suite struct AddressPolicyTests {
    private func verdict(_ policy: AddressPolicy, _ address: String, host: String = "a.example") throws
        -> AddressVerdict
    {
        policy.verdict(host: host, address: try #require(IPAddress(address)))
    }

    @Test(
        "a network is read or refused",
        arguments: [
            Case("RFC 4632 3.1", "10.0.0.0/8", "10.0.0.0/8"), Case("RFC 4632 3.1, all", "0.0.0.0/0", "0.0.0.0/0"),
            Case("RFC 4632 3.1, one", "192.0.2.1/32", "192.0.2.1/32"), Case("an address", "192.0.2.1", "192.0.2.1/32"),
            Case("RFC 4291 2.3", "2001:0DB8:0000::/32", "2001:db8::/32"), Case("RFC 4291 2.3, all", "::/0", "::/0"),
            Case("RFC 4291 2.3, across the middle", "2001:db8:0:0:8000::/65", "2001:db8:0:0:8000::/65"),
            Case("an address", "::1", "::1/128"), Case("RFC 4291 2.5.5.2, mapped", "::ffff:10.0.0.0/104", "10.0.0.0/8"),
            Case("RFC 4291 2.5.5.2, all mapped", "::ffff:0:0/96", "0.0.0.0/0"),
            Case("mapped and more", "::/80", "::/80"),
            Case("bits of a host", "10.0.0.1/8", "10.0.0.0/8?"), Case("bits of a host", "fe80::1/10", "fe80::/10?"),
            Case("too long", "10.0.0.0/33", "-"), Case("too long", "::/129", "-"), Case("no length", "10.0.0.0/", "-"),
            Case("sign", "10.0.0.0/+8", "-"), Case("two", "10.0.0.0/8/8", "-"),
            Case("netmask", "10.0.0.0/255.0.0.0", "-"),
            Case("three octets", "10.0.0/8", "-"), Case("brackets", "[::]/0", "-"), Case("zone", "fe80::%eth0/10", "-"),
            Case("overflow", "::/99999999999999999999", "-"), Case("a name", "example.org", "-"),
            Case("nothing", "", "-"),
        ])
    func network(_ row: Case<String>) {
        let text: String
        do {
            text = try IPNetwork(row.input).description
        } catch {
            switch error {
            case .nonzeroHostBits(let network): text = "\(network)?"
            case .notANetwork: text = "-"
            }
        }
        #expect(text == row.expected)
    }

    @Test(
        "public-only: what is not reachable from everywhere, first and last of each block",
        arguments: [
            "0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1",
            "127.255.255.255", "169.254.0.0", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.0",
            "192.0.0.255", "192.0.2.0", "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255",
            "198.51.100.7", "203.0.113.255", "224.0.0.1", "239.255.255.255", "240.0.0.0", "255.255.255.255", "::",
            "::1", "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "100::", "100::ffff", "100:0:0:1::1", "2001::",
            "2001:1ff:ffff::", "2001:2::1", "2001:db8::", "2001:db8:ffff::1", "3fff::1", "3fff:fff:ffff::", "5f00::1",
            "fc00::", "fd12:3456::1", "fdff:ffff::", "fe80::1", "febf::1", "fec0::1", "feff::1", "ff02::1", "ffff::",
        ])
    func special(_ address: String) throws {
        #expect(try !verdict(.publicOnly, address).isAllowed)
        #expect(try verdict(.allowAll, address) == .allowed(by: nil))
    }

    @Test(
        "public-only: the addresses beside those blocks, and others",
        arguments: [
            "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
            "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0",
            "192.0.3.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "8.8.8.8",
            "2001:200::", "2001:db7:ffff::", "2001:db9::", "2001:4860:4860::8888", "2606:4700::1111", "3ffe:ffff::1",
            "2000::1", "64:ff9b:2::1", "100:0:0:2::1",
        ])
    func general(_ address: String) throws {
        #expect(try verdict(.publicOnly, address) == .allowed(by: nil))
    }

    @Test(
        "IPv4 in IPv6 is judged by the IPv4 address, in all forms",
        arguments: [
            "::ffff:*", "::*", "::ffff:0:*", "64:ff9b::*", "2620:0:1::5efe:*", "2620:0:1::200:5efe:*",
        ])
    func embedded(_ form: String) throws {
        for (address, isAllowed) in [
            ("127.0.0.1", false), ("10.1.2.3", false), ("169.254.169.254", false), ("8.8.8.8", true),
        ] {
            let text = form.replacing("*", with: address)
            #expect(try verdict(.publicOnly, text).isAllowed == isAllowed, "\(text)")
            let closed = try AddressPolicy("deny 8.8.8.0/24")
            #expect(try verdict(closed, text).isAllowed == !isAllowed, "\(text)")
        }
    }

    @Test func `6to4 and Teredo are judged by what is inside`() throws {
        #expect(try !verdict(.publicOnly, "2002:7f00:1::1").isAllowed)
        #expect(try !verdict(.publicOnly, "2002:a9fe:a9fe::").isAllowed)
        #expect(try verdict(.publicOnly, "2002:808:808::1").isAllowed)
        // RFC 4380, section 4: server 65.54.227.120, client 192.0.2.45.
        let teredo = "2001:0:4136:e378:8000:63bf:3fff:fdd2"
        #expect(try !verdict(AddressPolicy("deny 192.0.2.45"), teredo).isAllowed)
        #expect(try !verdict(AddressPolicy("deny 65.54.227.120"), teredo).isAllowed)
        #expect(try verdict(AddressPolicy("deny 192.0.2.44"), teredo).isAllowed)
        #expect(try !verdict(AddressPolicy("deny 2001::/32"), teredo).isAllowed)
        #expect(try !verdict(.publicOnly, teredo).isAllowed)
    }

    @Test func `a rule for all of IPv6 is not about mapped addresses, and about all others`() throws {
        let policy = try AddressPolicy("deny ::/0")
        #expect(try verdict(policy, "::ffff:8.8.8.8").isAllowed)
        #expect(try !verdict(policy, "64:ff9b::8.8.8.8").isAllowed)
        let mapped = try AddressPolicy("deny ::ffff:8.8.8.0/120")
        #expect(try !verdict(mapped, "8.8.8.8").isAllowed && !verdict(mapped, "::ffff:8.8.8.8").isAllowed)
    }

    @Test(
        "the most specific rule counts, and of equals the one that denies",
        arguments: [
            Case("no rule", "", true), Case("one", "deny 10.0.0.0/8", false),
            Case("longer network allows", "deny 10.0.0.0/8\nallow 10.1.0.0/16", true),
            Case("longer network denies", "allow 10.0.0.0/8, deny 10.1.0.0/16", false),
            Case("equals", "allow 10.0.0.0/8\ndeny 10.0.0.0/8", false),
            Case("equals, the other way", "deny 10.0.0.0/8\nallow 10.0.0.0/8", false),
            Case("all but one", "deny *\nallow 10.1.2.3", true), Case("all but some", "deny *, allow 10.0.0.0/8", true),
            Case("all and all", "deny *\nallow 0.0.0.0/0", false), Case("all of IPv4", "deny 0.0.0.0/0", false),
            Case("another network", "deny 11.0.0.0/8\ndeny ::/0", true),
            Case("the host", "deny a.b.example", false), Case("hosts below", "deny *.b.example", false),
            Case("the name above is not below itself", "deny *.a.b.example", true),
            Case("no label's end", "deny *.xample\ndeny b.example", true),
            Case("host before hosts", "deny *.b.example, allow a.b.example", true),
            Case("longer name", "deny *.example\nallow *.b.example", true),
            Case("longer name denies", "allow *.example\ndeny *.b.example", false),
            Case("a host before a network", "deny 10.0.0.0/8\nallow a.b.example", true),
            Case("a host and an address", "deny 10.1.2.3\nallow a.b.example", false),
            Case("an address before hosts", "deny 10.1.2.3\nallow *.b.example", false),
            Case("an address that is allowed", "allow 10.1.2.3\ndeny *.b.example", true),
            Case("hosts and a network", "allow 10.0.0.0/8\ndeny *.b.example", false),
            Case("hosts and a network", "deny 10.0.0.0/8\nallow *.b.example", false),
            Case("preset", "public-only", false), Case("preset and a host", "public-only\nallow a.b.example", true),
            Case("preset and hosts", "public-only\nallow *.b.example", false),
            Case("preset and all hosts", "public-only\nallow *", false),
            Case("preset and its network", "public-only\nallow 10.0.0.0/8", true),
            Case("preset and an inner network", "allow 10.1.0.0/16, public-only", true),
            Case("preset and an outer network", "public-only\nallow 8.0.0.0/5", false),
            Case("preset for all", "all", true),
        ])
    func precedence(_ row: Case<Bool>) throws {
        let policy = try AddressPolicy(row.input)
        #expect(try verdict(policy, "10.1.2.3", host: "a.b.example").isAllowed == row.expected)
        #expect(try verdict(policy, "::ffff:10.1.2.3", host: "A.B.Example.").isAllowed == row.expected)
        let backwards = AddressPolicy(policy.rules.reversed())
        #expect(try verdict(backwards, "10.1.2.3", host: "a.b.example").isAllowed == row.expected)
    }

    @Test func `the verdict names its rule`() throws {
        let policy = try AddressPolicy("public-only\nallow 10.1.0.0/16\ndeny *.B.example.")
        guard case .denied(let special) = try verdict(policy, "127.0.0.1") else {
            Issue.record("allowed")
            return
        }
        #expect(special.description == "deny 127.0.0.0/8" && special.isPreset)
        guard case .denied(let host) = try verdict(policy, "8.8.8.8", host: "a.b.example") else {
            Issue.record("allowed")
            return
        }
        #expect(host.description == "deny *.b.example" && !host.isPreset)
        #expect(try verdict(policy, "10.1.0.1") == .allowed(by: policy.rules.first { $0.isAllowing }))
    }

    @Test func `an address as host is for networks, and for the pattern of all`() throws {
        #expect(try !verdict(AddressPolicy("deny *"), "8.8.8.8", host: "8.8.8.8").isAllowed)
        #expect(throws: AddressPolicy.ParseError.self) { try AddressPolicy("deny *.8") }
    }

    @Test(
        "what cannot be read is refused, with its line",
        arguments: [
            ("deny 10.0.0.0/8\n\npermit 10.0.0.0/8", AddressPolicy.ParseError.Code.unknownRule, 3),
            ("deny", .unknownRule, 1), ("deny 10.0.0.0/8 11.0.0.0/8", .unknownRule, 1), ("Deny *", .unknownRule, 1),
            ("public-only yes", .unknownRule, 1), ("10.0.0.0/8", .unknownRule, 1),
            ("deny 10.0.0.0/33", .invalidSubject, 1),
            ("deny 127.1", .invalidSubject, 1), ("deny 0x7f000001", .invalidSubject, 1),
            ("deny a*.b", .invalidSubject, 1),
            ("deny *.", .invalidSubject, 1), ("deny .", .invalidSubject, 1), ("deny *.1.2.3.4", .invalidSubject, 1),
            ("deny http://a.example", .invalidSubject, 1), ("deny a.example:80", .invalidSubject, 1),
            ("deny u@a.example", .invalidSubject, 1), ("deny bücher.example", .invalidSubject, 1),
            ("deny a..b", .invalidSubject, 1), ("# x\nall\npublic-only", .twoPresets, 3),
        ])
    func isRefused(_ text: String, _ code: AddressPolicy.ParseError.Code, _ line: Int) {
        let error = #expect(throws: AddressPolicy.ParseError.self) { try AddressPolicy(text) }
        #expect(error?.code == code && error?.line == line)
        #expect(error?.description.hasPrefix("Line \(line): ") == true)
    }

    @Test func `an address inside a network is refused with the network that is meant`() throws {
        let error = #expect(throws: AddressPolicy.ParseError.self) { try AddressPolicy("allow 10.1.2.3/8") }
        #expect(error?.code == .nonzeroHostBits(try IPNetwork("10.0.0.0/8")))
        #expect(error?.description.contains("10.0.0.0/8") == true)
    }

    @Test func `blanks, comments and line ends do not matter, and rules are bounded`() throws {
        let policy = try AddressPolicy(
            "  deny\t10.0.0.0/8 # inner, and more\r\n\n,, \n#all\n deny ::1,deny a.example\n")
        #expect(policy.rules.map(\.description) == ["deny a.example", "deny 10.0.0.0/8", "deny ::1/128"])
        let most = String(repeating: "deny ::1\n", count: HTTPLimits.addressRules)
        #expect(try AddressPolicy(most).rules.count == HTTPLimits.addressRules)
        let error = #expect(throws: AddressPolicy.ParseError.self) { try AddressPolicy(most + "deny ::1") }
        #expect(error?.code == .tooManyRules)
    }

    @Test(arguments: 0..<4 as Range<UInt64>)
    func `no text makes it trap, and its rules read back as they are told`(_ seed: UInt64) throws {
        var generator = SplitMix64Generator(seed: seed)
        let verbs = ["allow ", "deny ", "deny ", "public-only", "all", "#", ""]
        let pieces = [
            "10.0.0.0/8", "::/0", "10.0.0.0", "/8", "/0", "/128", "::", "ffff:", "1", ".", "*", "*.", "a.example", "/",
            " ", "é", "\u{0}", "99999999999999999999", "",
        ]
        var read = 0
        for _ in 0..<5000 {
            let rules = (0..<Int.random(in: 0...3, using: &generator)).map { _ in
                (verbs.randomElement(using: &generator) ?? "") + (pieces.randomElement(using: &generator) ?? "")
                    + (Bool.random(using: &generator) ? pieces.randomElement(using: &generator) ?? "" : "")
            }
            let text = rules.joined(separator: Bool.random(using: &generator) ? "\n" : ", ")
            guard let policy = try? AddressPolicy(text) else { continue }
            let own = policy.rules.filter { !$0.isPreset }
            read += own.count
            let again = try AddressPolicy(own.map(\.description).joined(separator: "\n"))
            #expect(again.rules == own, "seed \(seed): \(text.debugDescription)")
            let (high, low) = (generator.next(), generator.next())
            let address = IPAddress.v6(IPv6Address(highBits: Bool.random(using: &generator) ? 0 : high, lowBits: low))
            _ = policy.verdict(host: text, address: address)
        }
        #expect(read > 100, "the generator makes too few rules to test anything")
    }

    @Test func `a network holds what begins as it does, whatever its length`() throws {
        var generator = SplitMix64Generator(seed: 128)
        for prefix in 0...128 {
            let (high, low) = (generator.next(), generator.next())
            func bits(_ high: UInt64, _ low: UInt64) -> [Bool] {
                (0..<128).map { ($0 < 64 ? high >> (63 - UInt64($0)) : low >> (127 - UInt64($0))) & 1 == 1 }
            }
            let address = IPv6Address(highBits: high, lowBits: low)
            let network: IPNetwork
            do {
                network = try IPNetwork("\(address)/\(prefix)")
            } catch .nonzeroHostBits(let meant) {
                network = meant
            }
            #expect(network.contains(.v6(address)) && network.prefixLength == prefix)
            for flipped in 0..<128 {
                let flip: (UInt64, UInt64) =
                    flipped < 64 ? (1 << (63 - UInt64(flipped)), 0) : (0, 1 << (127 - UInt64(flipped)))
                let other = IPv6Address(highBits: high ^ flip.0, lowBits: low ^ flip.1)
                let isSame = bits(high, low).prefix(prefix) == bits(other.highBits, other.lowBits).prefix(prefix)
                #expect(network.contains(.v6(other)) == isSame && isSame == (flipped >= prefix))
            }
        }
    }
}
