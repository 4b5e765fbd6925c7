import Testing

@testable import earshot

/// Topics of `earshot help`: their layout and their names.
@Suite struct HelpTopicTests {
    /// Parses a printed topic as the man pages do.
    private func entries(of text: String) -> [HelpTopic.Entry] {
        var entries: [HelpTopic.Entry] = []
        for line in text.split(separator: "\n") where line.hasPrefix("  ") {
            if line.hasPrefix("        ") {
                let more = line.drop { $0 == " " }
                entries[entries.count - 1].meaning += (entries[entries.count - 1].meaning.isEmpty ? "" : " ") + more
            } else {
                let rest = line.dropFirst(2)
                let term = rest.firstRange(of: "  ").map { rest[..<$0.lowerBound] } ?? rest
                entries.append((String(term), String(rest[term.endIndex...].drop { $0 == " " })))
            }
        }
        return entries
    }

    @Test(arguments: HelpTopic.all.map(\.name))
    func `a printed topic has each entry once, in lines of 79 columns`(name: String) throws {
        let topic = try #require(HelpTopic.all.first { $0.name == name })
        let read = entries(of: topic.text)
        #expect(read.map(\.term) == topic.entries.map(\.term))
        #expect(read.map(\.meaning) == topic.entries.map(\.meaning))
        let lines = topic.text.split(separator: "\n", omittingEmptySubsequences: false)
        #expect(lines.allSatisfy { $0.count <= 79 })
        #expect(lines.first == Substring(topic.title) && lines.last == "")
    }

    @Test func `the topic of exit codes has each code in one line`() {
        let lines = HelpTopic.exitCodes.text.split(separator: "\n").suffix(ExitStatus.allCases.count)
        for (line, status) in zip(lines, ExitStatus.allCases) {
            #expect(line.hasPrefix("  \(status.rawValue) ") && line.hasSuffix("  \(status.meaning)"))
        }
    }

    @Test func `help for a topic is requested by its name`() {
        #expect(HelpTopic.requested(by: ["help", "files"])?.name == "files")
        #expect(HelpTopic.requested(by: ["help", "get"]) == nil)
        #expect(HelpTopic.requested(by: ["files"]) == nil)
        #expect(
            CommandShape.program?.firstUnknown(in: ["help", "exit-code"])?.message.contains("'exit-codes'") == true)
    }

    @Test func `no topic has the name of a command`() throws {
        let commands = try #require(CommandShape.program).subcommands.map(\.name)
        #expect(Set(commands).isDisjoint(with: HelpTopic.all.map(\.name)))
    }
}
