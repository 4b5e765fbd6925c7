internal import ArgumentParser
internal import EarshotClient
internal import EarshotCore
internal import EarshotLoop
internal import EarshotWire

/// Completions that depend on the running broker, or on earlier words of the command line.
///
/// The scripts of `earshot --generate-completion-script` run the program for them. Without a broker there are none. The
/// program writes nothing to standard error, which is the terminal of the shell.
enum ShellCompletion {
    /// Maximum time that the shell waits for the broker.
    private static let brokerTimeout = Duration.milliseconds(400)

    /// Nothing, for arguments such as URLs. Without it, zsh completes an option in their place only at the second TAB.
    static var noCompletion: CompletionKind { .list([]) }

    /// Names of the broker's handlers.
    static var handlerNames: CompletionKind {
        .custom { words, index, _ in handlerCandidates(words, at: index) }
    }

    /// Names of the broker's handlers, and of the subtrees with their final slash.
    static var handlerPatterns: CompletionKind {
        .custom { words, index, _ in
            let names = handlerCandidates(words, at: index)
            let prefix = word(words, at: index)
            let subtrees = Set(names.flatMap(enclosingSubtrees))
            return subtrees.union(names).filter { $0.hasPrefix(prefix) }.sorted()
        }
    }

    /// Names of settings and rules, and values of a setting that takes a word.
    static var settingWords: CompletionKind {
        .custom { words, index, _ in
            guard index < words.count, let command = words.firstIndex(of: "set"), command < index else {
                return nextSettingWords(after: [])
            }
            return nextSettingWords(after: operands(words[(command + 1)..<index]))
        }
    }

    // MARK: Settings

    /// Returns the possible next words after `words`, which begin with the name of a setting.
    static func nextSettingWords(after words: [String]) -> [String] {
        guard let name = words.first else {
            let ruleKeywords = [SettingName.originRuleKeyword, SettingName.addressRuleKeyword]
            return SettingName.allCases.map(\.rawValue) + ruleKeywords
        }
        switch (name, words.count) {
        case (SettingName.originRuleKeyword, 2...):
            let given = Set(words.dropFirst(2).map { $0.prefix { $0 != "=" } })
            let terms = SettingChange.settingsByRuleTerm.filter { !given.contains($0.key[...]) }
            let removalWords = words.count == 2 ? ["default"] : []
            let termWords: [String] = terms.flatMap { term, setting in
                setting.possibleWords.isEmpty ? ["\(term)="] : setting.possibleWords.map { "\(term)=\($0)" }
            }
            return termWords + removalWords
        case (SettingName.addressRuleKeyword, 2): return ["allow", "deny", "default"]
        case (_, 1): return SettingName(rawValue: name)?.possibleWords ?? []
        default: return []
        }
    }

    /// Removes options from the words after a command.
    private static func operands(_ words: ArraySlice<String>) -> [String] {
        var words = words
        var operands: [String] = []
        while let word = words.popFirst() {
            if busOptionNames.contains(word) {
                words = words.dropFirst()
            } else if !word.hasPrefix("-") {
                operands.append(word)
            }
        }
        return operands
    }

    // MARK: Handlers

    /// Queries the broker for handlers whose names begin with the word at `index`.
    private static func handlerCandidates(_ words: [String], at index: Int) -> [String] {
        let prefix = word(words, at: index)
        var answer: JSONValue?
        do {
            var place = BusOptions.defaults
            place.runtime = optionValue("--runtime", in: words)
            place.bus = optionValue("--bus", in: words).map { [$0] } ?? []
            place.busKey = optionValue("--bus-key", in: words)
            place.serverKey = optionValue("--server-key", in: words).map { [$0] } ?? []
            let session = try BusSession.connect(
                to: place.busLocation(), answerTimeout: brokerTimeout
            ) { session, event in
                switch event {
                case .queryAnswer(_, let json): answer = JSONValue(json)
                case .messageRefused: session.end(with: CommandError(.generalError))
                case .accepted, .terminal, .progress, .cancelled, .removed, .settingChanged, .state: break
                }
            }
            session.loop.setTimer(after: brokerTimeout) { session.end(with: CommandError(.noBroker)) }
            session.connection.query(.handlers, QueryPage(cursor: predecessor(of: prefix)))
            try session.run { answer != nil }
        } catch {
            return []
        }
        let own = answer?.items(ofMember: "handlers").filter { $0.member("principal") == nil } ?? []
        return own.compactMap { $0.member("handler")?.scalarText }.filter { $0.hasPrefix(prefix) && isShellSafe($0) }
    }

    /// Returns a name that sorts before all names with this prefix and after nearly all smaller ones. Nil for a prefix
    /// without such a name, such as the empty one.
    private static func predecessor(of prefix: String) -> String? {
        guard let last = prefix.utf8.last, last > 0x21, prefix.utf8.count < WireLimits.handlerBytes,
            prefix.utf8.allSatisfy({ (0x21...0x7e).contains($0) })
        else { return nil }
        let padding = WireLimits.handlerBytes - prefix.utf8.count
        return String(decoding: prefix.utf8.dropLast() + [last - 1], as: UTF8.self)
            + String(repeating: "~", count: padding)
    }

    /// Returns the names of all subtrees that contain a handler.
    private static func enclosingSubtrees(of name: String) -> [String] {
        name.indices.filter { name[$0] == "/" }.map { String(name[...$0]) }
    }

    /// Whether each shell reads the name as one word. Shells expand other names, and a name comes from another program.
    static func isShellSafe(_ name: String) -> Bool {
        name.utf8.allSatisfy { byte in
            byte.isLetter || byte.isDigit || "/._-+,@%".utf8.contains(byte)
        }
    }

    private static func word(_ words: [String], at index: Int) -> String {
        words.indices.contains(index) ? words[index] : ""
    }

    /// Options with a value that select the bus.
    private static let busOptionNames = ["--runtime", "--bus", "--bus-key", "--server-key"]

    /// Returns the value of an option on the command line; nil without it.
    private static func optionValue(_ name: String, in words: [String]) -> String? {
        if let option = words.firstIndex(of: name), option + 1 < words.count { return words[option + 1] }
        let prefix = name + "="
        return words.first { $0.hasPrefix(prefix) }.map { String($0.dropFirst(prefix.count)) }
    }
}
