import Foundation

/// Rules of the layers of EarshotCore: tables in `Records`, mechanisms that receive them, and `BrokerCore`, which composes
/// the mechanisms. Each function returns its violations as `path:line: problem`.
enum Layers {
    /// Mechanisms in the form of a type named like its folder. They receive the records and call no other mechanism.
    static let mechanisms: Set = [
        "Cache", "Clients", "Cluster", "Cookies", "Delivery", "Durable", "Flights", "Origins", "Parts", "Principals",
        "Rates", "Spool",
        "Workers",
    ]

    /// Folders with data and definitions, which every layer may name.
    private static let foundations: Set = ["Records", "Storage", "Settings", "Outcomes", "Counters"]

    /// Results of rules. Records do not return them.
    private static let verdicts = ["FlightStep", "RequestRefusal", "EndedDelivery"]

    /// Functions of the records that store a time, and compare it with none.
    private static let timeSetters: Set = ["setTimer", "setSessionLeaseTimer"]

    /// Maximum number of lines of a function's body, with its braces.
    static let maximumLines = 60

    /// Maximum number of functions that call one another in a cycle.
    static let maximumInCycle = 3

    /// Bodies that are tables of definitions, which may be longer.
    private static let tables: Set = ["definition"]

    private static let core = "Sources/EarshotCore/"

    /// The subfolder of EarshotCore that a file is in; nil for other files.
    private static func folder(of file: SourceFile) -> String? {
        guard file.path.hasPrefix(core) else { return nil }
        let parts = file.path.dropFirst(core.count).split(separator: "/")
        return parts.count > 1 ? String(parts[0]) : nil
    }

    // MARK: Names

    /// Names of other mechanisms, or of the type that composes them, in the folder of a mechanism.
    ///
    /// - Parameter folders: all subfolders of EarshotCore.
    static func namedMechanisms(_ file: SourceFile, folders: Set<String>) -> [String] {
        guard let own = folder(of: file), mechanisms.contains(own) else { return [] }
        let others = folders.subtracting(foundations).subtracting([own]).sorted() + ["BrokerCore"]
        return found(#"(?<![.\w])("# + others.joined(separator: "|") + #")\b(?!:)"#, in: file)
            .map { "\(file.path):\($0.line): the mechanism \(own) names \($0.text)" }
    }

    /// Extensions of a type of the core outside the folder that it belongs to: of the records, of the mechanisms, and of
    /// `BrokerCore`, whose folder is the root.
    static func foreignExtensions(_ file: SourceFile) -> [String] {
        guard file.path.hasPrefix(core) else { return [] }
        let types = mechanisms.union(["Records", "BrokerCore"]).sorted()
        let own = folder(of: file) ?? "BrokerCore"
        return found(#"\bextension ("# + types.joined(separator: "|") + #")\b(?!\.)"#, in: file)
            .filter { !$0.text.hasSuffix(" " + own) }
            .map { "\(file.path):\($0.line): \($0.text) outside its folder" }
    }

    /// The time, or a result of rules, in the records.
    static func rulesInRecords(_ file: SourceFile) -> [String] {
        guard folder(of: file) == "Records" else { return [] }
        let words = ["now", "(?<!var )latestEventTime", "BrokerCore"] + verdicts + mechanisms.sorted()
        let named = found(#"\b("# + words.joined(separator: "|") + #")\b"#, in: file)
            .map { "\(file.path):\($0.line): \($0.text) in the records, which decide nothing" }
        let timed = functions(of: file).filter { function in
            !timeSetters.contains(function.name)
                && function.parameters?.contains { !matches(#"\bMonotonicTime\b"#, in: $0.type).isEmpty } == true
        }
        return named + timed.map { "\($0.path):\($0.line): \($0.name) takes a time, but records decide nothing" }
    }

    // MARK: Functions

    /// A function, an initializer or a computed property.
    struct Function {
        let name: String
        /// Type whose declaration or extension contains it; empty if that was not read.
        let type: String
        /// Nil for a property.
        let parameters: [Parameter]?
        let path: String
        /// Line of its opening brace, from 1.
        let line: Int
        let body: String

        var lineCount: Int { body.split(separator: "\n", omittingEmptySubsequences: false).count }

        /// Whether a call can name this function, which may omit defaults and closures that follow it.
        func accepts(_ call: Call) -> Bool {
            guard let parameters else { return call.labels == nil }
            guard call.labels != nil || call.hasClosure else { return false }
            var labels = (call.labels ?? [])[...]
            for parameter in parameters {
                if labels.first == parameter.label {
                    labels.removeFirst()
                } else if !parameter.hasDefault, !(call.hasClosure && parameter.isClosure) {
                    return false
                }
            }
            return labels.isEmpty
        }
    }

    struct Parameter {
        /// `_` without one.
        let label: String
        let type: String
        let hasDefault: Bool

        var isClosure: Bool { type.contains("->") }
    }

    /// Use of a name in a function.
    struct Call {
        /// Labels of the arguments, `_` without one; nil without parentheses.
        let labels: [String]?
        let hasClosure: Bool
    }

    /// Functions of EarshotCore above `maximumLines` lines.
    static func longFunctions(_ file: SourceFile) -> [String] {
        guard file.path.hasPrefix(core) else { return [] }
        return functions(of: file).filter { $0.lineCount > maximumLines && !tables.contains($0.name) }
            .map { "\($0.path):\($0.line): \($0.name) has \($0.lineCount) lines, more than \(maximumLines)" }
    }

    /// Cycles of more than `maximumInCycle` functions of `BrokerCore`, the records and the mechanisms.
    ///
    /// A call names a function of the type before it, else of the caller's, in any file. Its labels select the overload;
    /// it counts as a call of each one that they fit.
    static func cycles(in files: [SourceFile]) -> [String] {
        let types = mechanisms.union(["Records", "BrokerCore"])
        let declared = files.filter { $0.path.hasPrefix(core) }.flatMap { functions(of: $0, types: types) }
        let named = Dictionary(grouping: declared.indices) { "\(declared[$0].type).\(declared[$0].name)" }
        let receivers = ["core": "BrokerCore", "records": "Records"]
        var calls: [Int: Set<Int>] = [:]
        for (index, function) in declared.enumerated() {
            let own = #"(?:(?:self|core)\.(?=records\.))?"#
            let pattern = #"(?<![\w.`])"# + own + #"(?:(core|records|self|Self|[A-Z]\w*)\.)?(\w+)\b(?!:)"#
            for match in matches(pattern, in: function.body) {
                let receiver = match.groups[0]
                let isOwn = ["", "self", "Self"].contains(receiver)
                let type = isOwn ? function.type : receivers[receiver] ?? receiver
                guard let callees = named["\(type).\(match.groups[1])"] else { continue }
                let call = call(in: function.body, at: match.end)
                calls[index, default: []].formUnion(callees.filter { declared[$0].accepts(call) })
            }
        }
        return components(of: calls).filter { $0.count > maximumInCycle }.map { cycle in
            let names = cycle.map { declared[$0].name }.sorted()
            return "\(core):1: \(cycle.count) functions call one another: \(names.joined(separator: ", "))"
        }
    }

    /// Reads the arguments after a name.
    private static func call(in text: String, at start: Int) -> Call {
        let rest = String(decoding: text.utf16.dropFirst(start), as: UTF16.self)
        guard rest.hasPrefix("(") else { return Call(labels: nil, hasClosure: rest.hasPrefix(" {")) }
        let arguments = block(of: rest, from: 0, in: "()")
        let labels = parts(of: arguments, in: "([{").map { matches(#"^\s*(\w+)\s*:"#, in: $0).first?.group ?? "_" }
        return Call(labels: labels, hasClosure: rest.dropFirst(arguments.count).hasPrefix(" {"))
    }

    /// Reads the parameters of a declaration.
    private static func parameters(in text: String, after start: Int) -> [Parameter] {
        let rest = String(decoding: text.utf16.dropFirst(start), as: UTF16.self)
        guard let open = rest.utf16.firstIndex(of: 0x28) else { return [] }
        let list = block(of: rest, from: rest.utf16.distance(from: rest.startIndex, to: open), in: "()")
        return parts(of: list, in: "([{<").map { part in
            Parameter(
                label: matches(#"^\s*(\w+)"#, in: part).first?.group ?? "_",
                type: String(part.drop { $0 != ":" }),
                hasDefault: !matches(#"(?<![=!<>])=(?!=)"#, in: part).isEmpty)
        }
    }

    /// Parts of a list in parentheses between its commas, except those in inner brackets.
    private static func parts(of list: String, in brackets: String) -> [String] {
        var parts = [""]
        var depth = 0
        var last: Character = " "
        for character in list.dropFirst().dropLast() {
            if brackets.contains(character) { depth += 1 }
            // An arrow is no bracket.
            let closes = ")]}".contains(character) || character == ">" && last != "-" && brackets.contains("<")
            if closes { depth -= 1 }
            if character == ",", depth == 0 { parts.append("") } else { parts[parts.count - 1].append(character) }
            last = character
        }
        return parts.filter { $0.contains { !$0.isWhitespace } }
    }

    /// Bodies of functions in a file.
    ///
    /// - Parameter types: types whose declarations and extensions are read; nil for all.
    private static func functions(of file: SourceFile, types: Set<String>? = nil) -> [Function] {
        let text = file.code.joined(separator: "\n")
        guard let types else { return functions(in: text, of: "", at: 0, of: text, file.path) }
        let pattern = #"(?m)^(?:\w+ )?(?:extension|struct|enum) (\w+)\b[^{\n]*\{"#
        return matches(pattern, in: text).filter { types.contains($0.group) }.flatMap { match in
            let body = block(of: text, from: match.end - 1)
            return functions(in: body, of: match.group, at: match.end - 1, of: text, file.path)
        }
    }

    private static func functions(
        in region: String, of type: String, at offset: Int, of text: String, _ path: String
    ) -> [Function] {
        let units = Array(region.utf16)
        let whole = Array(text.utf16)
        return matches(#"\bfunc (\w+)|(?<![.\w])(init)[?(<]|(?m)^ {4,}[\w() ]*\bvar (\w+): [^={\n]+\{$"#, in: region)
            .compactMap { match in
                var index = match.start
                var depth = 0
                // To the brace that opens the body; parameters may contain closures.
                while index < units.count, depth > 0 || units[index] != 0x7b {
                    if units[index] == 0x28 { depth += 1 }
                    if units[index] == 0x29 { depth -= 1 }
                    index += 1
                }
                guard index < units.count else { return nil }
                let line = whole[..<(offset + index)].count { $0 == 0x0a } + 1
                let isProperty = units[match.end - 1] == 0x7b
                return Function(
                    name: match.group, type: type,
                    parameters: isProperty ? nil : parameters(in: region, after: match.start), path: path, line: line,
                    body: block(of: region, from: index))
            }
    }

    /// The text from an opening bracket to the one that closes it.
    private static func block(of text: String, from start: Int, in brackets: String = "{}") -> String {
        let units = Array(text.utf16)
        let (open, close) = (brackets.utf16.first, brackets.utf16.last)
        var depth = 0
        for index in start..<units.count {
            if units[index] == open { depth += 1 }
            if units[index] == close { depth -= 1 }
            if depth == 0 { return String(decoding: units[start...index], as: UTF16.self) }
        }
        return String(decoding: units[start...], as: UTF16.self)
    }

    /// Strongly connected components of a graph.
    private static func components(of graph: [Int: Set<Int>]) -> [[Int]] {
        var order: [Int: Int] = [:]
        var lowest: [Int: Int] = [:]
        var stack: [Int] = []
        var isOnStack: Set<Int> = []
        var found: [[Int]] = []
        func visit(_ node: Int) {
            let number = order.count
            order[node] = number
            lowest[node] = number
            stack.append(node)
            isOnStack.insert(node)
            for next in graph[node, default: []].sorted() {
                if order[next] == nil { visit(next) }
                guard isOnStack.contains(next), let low = lowest[next], let own = lowest[node] else { continue }
                lowest[node] = min(own, low)
            }
            guard lowest[node] == number, let first = stack.firstIndex(of: node) else { return }
            isOnStack.subtract(stack[first...])
            found.append(Array(stack[first...]))
            stack.removeSubrange(first...)
        }
        for node in graph.keys.sorted() where order[node] == nil { visit(node) }
        return found
    }

    // MARK: Patterns

    private struct Match {
        let start: Int
        let end: Int
        /// Groups of the pattern; empty for one that did not match.
        let groups: [String]

        /// First group that matched.
        var group: String { groups.first { !$0.isEmpty } ?? "" }
    }

    private static func expression(_ pattern: String) -> NSRegularExpression {
        // Patterns are constants of this file with names of Swift types, so an invalid one is a programming error.
        try! NSRegularExpression(pattern: pattern)
    }

    private static func matches(_ pattern: String, in text: String) -> [Match] {
        expression(pattern).matches(in: text, range: NSRange(text.startIndex..., in: text)).map { match in
            let groups = (1..<max(1, match.numberOfRanges)).map { Range(match.range(at: $0), in: text) }
            return Match(
                start: match.range.location, end: match.range.location + match.range.length,
                groups: groups.map { $0.map { String(text[$0]) } ?? "" })
        }
    }

    private static func found(_ pattern: String, in file: SourceFile) -> [(line: Int, text: String)] {
        let expression = expression(pattern)
        return file.code.enumerated().compactMap { index, line in
            let whole = NSRange(line.startIndex..., in: line)
            guard let match = expression.firstMatch(in: line, range: whole), let range = Range(match.range, in: line)
            else { return nil }
            return (index + 1, String(line[range]))
        }
    }
}
