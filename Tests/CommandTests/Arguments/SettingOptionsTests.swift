import ArgumentParser
import EarshotCore
import Foundation
import Testing

@testable import earshot

/// Settings as options of `serve` and `broker`.
@Suite struct SettingOptionsTests {
    private func words(_ arguments: String...) throws -> [String] { try words(arguments) }

    private func words(_ arguments: [String]) throws -> [String] {
        try SettingOptions.parse(arguments).settingChanges().map { $0.normalizedWords.joined(separator: " ") }
    }

    @Test func `each setting is an option that takes its value as SET does`() throws {
        let rows = Settings().rows.filter { $0.pattern == nil && $0.value != "-" }
        #expect(rows.count > 10)
        // In one command line, because a debug build needs long for each.
        let changes = try words(rows.flatMap { ["--\($0.name)", $0.value] })
        #expect(changes.sorted() == rows.map { "\($0.name) \($0.value)" }.sorted())
    }

    @Test func `the help has each setting once with its default`() {
        let help = SettingOptions.helpMessage(columns: 200)
        let defaults = Settings()
        for name in SettingName.allCases {
            #expect(help.components(separatedBy: "--\(name.rawValue) <").count == 2, "\(name)")
            if let value = defaults[name] { #expect(help.contains("(default: \(name.valueText(value)))"), "\(name)") }
        }
    }

    @Test func `a broker alone refuses a number of workers`() {
        #expect(throws: (any Error).self) { try BrokerCommand.parse(["--workers", "3"]) }
        #expect(throws: Never.self) { try BrokerCommand.parse(["--slots", "3"]) }
    }

    @Test func `users are a list`() throws {
        #expect(try words("--users", "www-data,@staff") == ["users www-data,@staff"])
        #expect(throws: (any Error).self) { try words("--users", "a b") }
    }

    @Test func `rules may be repeated`() throws {
        let origins = try words("--origin", "a.example limit=2", "--origin", "*.b.example spacing=0.5")
        #expect(origins == ["origin a.example limit=2", "origin *.b.example spacing=0.5"])
        let addresses = try words("--deny", "c.example", "--allow", "10.0.0.0/8", "--allow", "*.d.example")
        #expect(addresses == ["address 10.0.0.0/8 allow", "address *.d.example allow", "address c.example deny"])
    }

    @Test(arguments: [
        ["--slots", "0"], ["--slots", "many"], ["--origin", "a.example limit=0"], ["--origin", "a.example"],
        ["--allow", "10.0.0.0/64"], ["--deny", ""], ["--address-policy", "none"],
    ])
    func `a value that no setting takes is refused with the name of its option`(arguments: [String]) {
        do {
            let options = try SettingOptions.parse(arguments)
            Issue.record("taken: \(try options.settingChanges())")
        } catch {
            let message = SettingOptions.message(for: error)
            #expect(message.contains(arguments[0]), "\(message)")
        }
    }
}
