import RESP
import Testing

@testable import EarshotCluster

/// Rules of the users of servers and sentinels.
@Suite struct EngineRulesTests {
    /// Options of commands, which are words of scripts in capital letters, too.
    private static let options: Set = ["WITHSCORES", "LIMIT", "PX", "LT", "NX", "XX", "GT", "REV", "INCR"]

    @Test(arguments: EngineScript.allCases)
    func `the rules of a node permit each command of the scripts`(script: EngineScript) {
        let text = String(decoding: script.scriptText, as: UTF8.self)
        let words = text.matches(of: /'([A-Z]{2,})'/).map { String($0.1) }.filter { !Self.options.contains($0) }
        #expect(!words.isEmpty)
        let permitted = Set(EngineRules.permittedCommands.map { $0.name.uppercased() })
        for word in words { #expect(permitted.contains(word), "\(word) of \(script) needs a permission") }
    }

    @Test func `each command is tried with keys of the cluster alone`() {
        let names = EngineNames(cluster: "shop")
        let samples = EngineRules.samples(in: names)
        #expect(samples.count == EngineRules.permittedCommands.count)
        #expect(
            samples.first { $0.words[0] == "RENAME" }?.words.dropFirst() == [
                "\(names.prefix)check:a", "\(names.prefix)check:b",
            ])
        #expect(samples.first?.words == ["EVAL", "return 1", "1", "\(names.prefix)check:a"])
        #expect(samples.contains { $0.words == ["SCRIPT", "LOAD", "return 1"] })
        #expect(samples.last?.words == ["SUBSCRIBE", "\(names.prefix)check"])
    }
}
