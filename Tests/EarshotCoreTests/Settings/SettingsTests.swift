import EarshotHTTP
import EarshotWire
import Testing

@testable import EarshotCore

/// Settings in text form: names, bounds, rules, sources.
struct SettingsTests {
    private func change(_ text: String) throws(SettingError) -> SettingChange {
        try SettingChange(words: text.split(separator: " ").map { String($0) })
    }

    private func refusal(_ text: String) -> String {
        do throws(SettingError) {
            return "taken: \(try change(text))"
        } catch {
            return error.description
        }
    }

    @Test func `each number takes the ends of its range and nothing beyond`() throws {
        for name in SettingName.allCases {
            for value in [name.storedValueRange.lowerBound, name.storedValueRange.upperBound] {
                let text = "\(name.rawValue) \(name.valueText(value))"
                #expect(try change(text) == .setValue(name, value))
                #expect(try change(text).normalizedWords.joined(separator: " ") == text)
            }
            for text in ["-1", "+1", "", "x", "1e3", "0x10", "9999999999999999", "99999999999999999999"] {
                #expect(refusal("\(name.rawValue) \(text)").contains(name.possibleValuesDescription), "\(text)")
            }
            if name.storedValueRange.lowerBound == 1 {
                #expect(refusal("\(name.rawValue) 0").contains(name.possibleValuesDescription))
            }
        }
    }

    @Test func `a list has its words in order, and none is a list too`() throws {
        #expect(try change("users www-data,@staff,1000") == .setList(.allowedUsers, ["www-data", "@staff", "1000"]))
        #expect(try change("users www-data,@staff").normalizedWords == ["users", "www-data,@staff"])
        #expect(
            try change("users -") == .setList(.allowedUsers, []) && change("users -").normalizedWords == ["users", "-"])
        for text in ["users", "users a b", "users ,", "users a,", "users a,-", "users ä"] {
            #expect(refusal(text).contains(ListSettingName.allowedUsers.possibleValuesDescription), "\(text)")
        }
        for count in [100, 101] {
            let list = Array(repeating: "u", count: count).joined(separator: ",")
            #expect(refusal("users \(list)").hasPrefix("taken") == (count == 100))
        }
        #expect(refusal("user a").contains("did you mean users?"))
    }

    @Test func `a list of a later source replaces the earlier one, and the supervisor tells it to its broker`() throws {
        var settings = Settings()
        #expect(settings[.allowedUsers].isEmpty && settings.source(of: .allowedUsers) == "default")
        let row = { (settings: Settings) in settings.rows.first { $0.name == "users" } }
        #expect(row(settings)?.value == "-")
        try settings.applyChange(change("users a,@b"), source: "/etc/a.toml")
        #expect(row(settings) == Settings.SettingRow(name: "users", pattern: nil, value: "a,@b", source: "/etc/a.toml"))
        try settings.applyChange(change("users -"), source: Settings.SourceName.commandLineOption)
        #expect(settings[.allowedUsers].isEmpty)
        #expect(try Settings(supervisorLines: settings.supervisorLines) == settings)
    }

    @Test func `a size may have a suffix, and its normal form has none`() throws {
        for (text, bytes) in [("64K", 64 << 10), ("2m", 2 << 20), ("0", 0), ("16777216", 16 << 20)] {
            #expect(try change("inline-bytes \(text)") == .setValue(.inlineBytes, bytes))
        }
        #expect(try change("spool-size 2G").normalizedWords == ["spool-size", "2147483648"])
        for text in ["17M", "1.5M", "1MB", "1P", "K"] {
            #expect(
                refusal("inline-bytes \(text)").contains(SettingName.inlineBytes.possibleValuesDescription), "\(text)")
        }
        #expect(refusal("slots 1K").contains(SettingName.slots.possibleValuesDescription), "not a size")
    }

    @Test func `what nobody says is within its range`() {
        let settings = Settings()
        for name in SettingName.allCases {
            if let value = settings[name] { #expect(name.storedValueRange.contains(value), "\(name)") }
        }
        #expect(settings[.workers] == nil && settings[.slots] == nil)
    }

    @Test func `a quota of one user is a quarter of what all share, or as set`() throws {
        var settings = Settings()
        func quotas() -> QuotaBook.Limits { settings.coreLimits(from: CoreLimits()).userQuotas }
        #expect(quotas().openRequests == 500_000)
        #expect(quotas().spoolBytes == 2_560 << 20 && quotas().durableBytes == 256 << 20)
        #expect(quotas().transfers == 0, "without a supervisor the number of slots is unknown")
        for (name, value) in [
            (.workers, 2), (.slots, 64), (.requests, 1_000), (.spoolSize, 4 << 20), (.durableSize, 8_000),
        ] as [(SettingName, Int)] {
            try settings.applyChange(.setValue(name, value), source: Settings.SourceName.clientSet)
        }
        let quarters = QuotaBook.Limits(
            openRequests: 250, transfers: 32, spoolBytes: 1 << 20, memoryBytes: 256 << 20, terminals: 4_000_000,
            durableBytes: 2_000)
        #expect(quotas() == quarters)
        try settings.applyChange(.setValue(.transfersPerUser, 0), source: Settings.SourceName.clientSet)
        try settings.applyChange(.setValue(.requestsPerUser, 0), source: Settings.SourceName.clientSet)
        #expect(quotas().transfers == 32 && quotas().openRequests == 0)
        try settings.applyChange(.setValue(.transfersPerUser, 100), source: Settings.SourceName.clientSet)
        #expect(quotas().transfers == 100)
    }

    @Test func `each setting changes one limit and no other setting's, unless code looks it up`() throws {
        let defaults = Settings()
        let (core, workers) = (defaults.coreLimits(from: CoreLimits()), defaults.workerLimits(from: Self.workerLimits))
        #expect(core == CoreLimits())
        var changed: [(CoreLimits, WorkerLimits)] = []
        for name in SettingName.allCases {
            var settings = defaults
            try settings.applyChange(
                .setValue(name, defaults[name] == 1 ? 0 : 1), source: Settings.SourceName.clientSet)
            let found = (settings.coreLimits(from: CoreLimits()), settings.workerLimits(from: Self.workerLimits))
            switch name.definition.settingTarget {
            // Rules for addresses reach the workers with the policy.
            // A quarter of it is the quota of one user.
            case .readByOtherCode where name == .durableSize: break
            case .supervisorSetting where name != .addressPolicy, .readByOtherCode where name != .addressPolicy:
                #expect(found == (core, workers), "\(name)")
            default:
                #expect(found != (core, workers), "\(name)")
                #expect(!changed.contains { $0 == found }, "\(name)")
                changed.append(found)
            }
        }
        #expect(
            workers.maximumInlineBodyBytes == 65_536 && workers.maximumErrorPageBytes == 1 << 20 && workers.slots == nil
        )
    }

    private static let workerLimits = WorkerLimits(broker: BrokerInstance(rawValue: 1), spoolPath: "/spool")

    @Test func `seconds are written shortest`() throws {
        #expect(try change("drain-seconds 1.500").normalizedWords == ["drain-seconds", "1.5"])
        #expect(try change("cool-down 030").normalizedWords == ["cool-down", "30"])
        #expect(refusal("slots 1.5") == "slots must be 1 to 10000")
    }

    @Test func `a rule is one for its pattern in normal form`() throws {
        #expect(
            try change("origin HTTPS://Example.ORG:443 spacing=0.50 limit=2").normalizedWords
                == ["origin", "https://example.org", "limit=2", "spacing=0.5"])
        #expect(try change("origin *.example.org limit=1").replacementKey == "origin *.example.org")
        #expect(
            try change("origin example.org default") == .removeOriginRule(try #require(OriginPattern("example.org"))))
    }

    @Test(arguments: [
        "origin", "origin example.org", "origin http://a/b limit=1", "origin a limit", "origin a limit=1 limit=2",
        "origin a depth=1", "origin a default limit=1", "origin a limit=0", "origin a limit=10001",
        "origin a spacing=-1", "origin a spacing=", "workers", "workers 1 2", "nothing 1", "Slots 3",
    ])
    func `what is no setting is refused in a sentence without a word of it`(text: String) {
        let sentence = refusal(text)
        #expect(!sentence.hasPrefix("taken"), "\(sentence)")
        for word in ["depth", "nothing", "10001"] { #expect(!sentence.contains(word)) }
    }

    @Test func `an unknown name is answered with what it may have been`() {
        #expect(refusal("origin-limt 3").contains("did you mean origin-limit?"))
        #expect(refusal("workrs 3").contains("did you mean workers?"))
        #expect(refusal("color 3").contains("use workers, slots,"))
        #expect(refusal(String(repeating: "x", count: 60_000) + " 3").contains("use workers"))
    }

    @Test func `the stronger source wins and is told`() throws {
        var settings = Settings()
        try settings.applyChange(change("slots 3"), source: "/etc/a.toml")
        try settings.applyChange(change("origin a.example limit=3"), source: "/etc/a.toml")
        try settings.applyChange(change("slots 4"), source: Settings.SourceName.commandLineOption)
        try settings.applyChange(change("slots 5"), source: Settings.SourceName.clientSet)
        try settings.applyChange(change("origin a.example spacing=1"), source: Settings.SourceName.clientSet)
        #expect(settings[.slots] == 5)
        #expect(settings.source(of: .slots) == "set")
        #expect(
            settings.rows.first { $0.pattern != nil }
                == Settings.SettingRow(name: "origin", pattern: "a.example", value: "spacing=1", source: "set"))
        #expect(
            settings.rows.first == Settings.SettingRow(name: "workers", pattern: nil, value: "-", source: "default"))
        try settings.applyChange(change("origin a.example default"), source: Settings.SourceName.clientSet)
        #expect(settings.rows.allSatisfy { $0.name != "origin" })
    }

    @Test func `the most specific rule that speaks of HTTP/2 counts`() throws {
        var settings = Settings()
        for text in ["http2 off", "origin *.b.example http2=auto", "origin a.b.example limit=2"] {
            try settings.applyChange(change(text), source: "f")
        }
        let rules = try Settings(supervisorLines: settings.supervisorLines).coreLimits(from: CoreLimits()).originRules
        for (name, isAllowed) in [("https://a.b.example", true), ("https://c.example", false)] {
            let origin = try #require(Origin(named: name))
            #expect(rules.terms(for: origin).allowsHTTP2 == isAllowed)
        }
    }

    @Test func `there is room for a thousand rules and for changes of them`() throws {
        var settings = Settings()
        for number in 0..<Settings.maximumOriginRules {
            try settings.applyChange(change("origin h\(number) limit=1"), source: "f")
        }
        #expect(throws: SettingError.self) { try settings.applyChange(change("origin other limit=1"), source: "f") }
        try settings.applyChange(change("origin h7 limit=2"), source: "f")
        try settings.applyChange(change("origin h8 default"), source: "f")
        try settings.applyChange(change("origin other limit=1"), source: "f")
    }

    @Test(arguments: [
        ("http2 off", "http2 off"), ("http2 auto", "http2 auto"),
        ("origin a http2=off limit=2", "origin a limit=2 http2=off"), ("origin a http2=auto", "origin a http2=auto"),
        ("address-policy public-only", "address-policy public-only"), ("address-policy all", "address-policy all"),
        ("address 10.0.0.0/8 allow", "address 10.0.0.0/8 allow"),
        ("address ::FFFF:10.1.2.3 deny", "address 10.1.2.3/32 deny"),
        ("address *.Example.ORG deny", "address *.example.org deny"), ("address * default", "address * default"),
    ])
    func `words are told in normal form`(text: String, normal: String) throws {
        #expect(try change(text).normalizedWords.joined(separator: " ") == normal)
    }

    @Test(arguments: [
        "http2", "http2 on", "http2 off off", "origin a http2", "origin a http2=1", "origin a http2=off http2=off",
        "address-policy", "address-policy none", "address-policy all all", "address", "address 10.0.0.0/8",
        "address 10.0.0.0/33 deny", "address a/b deny", "address 10.0.0.0/8 forbid", "address a allow deny",
    ])
    func `other words are refused in a sentence`(text: String) {
        #expect(!refusal(text).hasPrefix("taken"))
    }

    @Test func `an address inside a network is answered with the network`() {
        #expect(refusal("address 10.1.2.3/8 deny").contains("write 10.0.0.0/8"))
    }

    @Test func `what workers are told about addresses is the preset and all rules`() throws {
        var settings = Settings()
        #expect(settings.addressPolicyText.isEmpty)
        for text in ["address-policy public-only", "address b.example deny", "address 10.0.0.0/8 allow"] {
            try settings.applyChange(change(text), source: Settings.SourceName.clientSet)
        }
        #expect(settings.addressPolicyText == "public-only, allow 10.0.0.0/8, deny b.example")
        #expect(try Settings(supervisorLines: settings.supervisorLines) == settings)
        try settings.applyChange(change("address b.example default"), source: Settings.SourceName.clientSet)
        #expect(settings.addressPolicyText == "public-only, allow 10.0.0.0/8")
    }

    @Test func `the longest rules for addresses fit a head`() throws {
        let label = String(repeating: "a", count: 61)
        var settings = Settings()
        for number in 0..<Settings.maximumAddressRules {
            let host = "\(1000 + number)x." + [label, label, label, String(label.dropLast(5))].joined(separator: ".")
            try settings.applyChange(change("address *.\(host) allow"), source: "f")
        }
        #expect(throws: SettingError.self) { try settings.applyChange(change("address one.more deny"), source: "f") }
        #expect(settings.addressPolicyText.utf8.count < WireLimits.headBytes - 8_192)
    }

    @Test func `what a supervisor tells its broker is all of it`() throws {
        var settings = Settings()
        try settings.applyChange(change("workers 3"), source: Settings.SourceName.builtInDefault)
        try settings.applyChange(change("slots 4"), source: "/home of/x\ty\n.toml")
        try settings.applyChange(
            change("origin *.a.example limit=3 spacing=0.25"), source: Settings.SourceName.clientSet)
        #expect(try Settings(supervisorLines: settings.supervisorLines) == settings)
        #expect(settings.supervisorLines.allSatisfy { !$0.contains("\n") })
        #expect(throws: SettingError.self) { try Settings(supervisorLines: ["slots 3"]) }
        #expect(throws: SettingError.self) { try Settings(supervisorLines: ["set\tslots 0"]) }
    }
}
