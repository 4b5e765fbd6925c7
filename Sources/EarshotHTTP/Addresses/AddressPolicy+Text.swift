/// Text of an address policy, as the setting `address-policy` and the message LIMITS have it.
extension AddressPolicy {
    /// Parses rules separated by line feeds or commas: `allow 10.0.0.0/8`, `deny *.internal`, and at most one preset,
    /// `public-only` or `all`. `#` begins a comment.
    public init(_ text: String) throws(ParseError) {
        var rules: [AddressRule] = []
        var preset: AddressPreset?
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline).enumerated() {
            let statement = line.prefix { $0 != "#" }
            for part in statement.split(separator: ",") {
                let words = part.split { $0 == " " || $0 == "\t" }.map(String.init)
                guard let verb = words.first else { continue }
                func fail(_ code: ParseError.Code) -> ParseError { ParseError(code: code, line: index + 1) }
                if words.count == 1, let named = AddressPreset(rawValue: verb) {
                    guard preset == nil || preset == named else { throw fail(.twoPresets) }
                    preset = named
                    continue
                }
                switch (verb, words.count) {
                case ("allow", 2), ("deny", 2):
                    guard rules.count < HTTPLimits.addressRules else { throw fail(.tooManyRules) }
                    do {
                        rules.append(AddressRule(try AddressRule.Subject(words[1]), isAllowing: verb == "allow"))
                    } catch {
                        throw fail(error)
                    }
                default: throw fail(.unknownRule)
                }
            }
        }
        self.init(rules + (preset?.rules ?? []))
    }

    /// Error in the text of a policy.
    public struct ParseError: Error, Hashable, Sendable, CustomStringConvertible {
        /// Kinds of errors.
        public enum Code: Error, Hashable, Sendable {
            /// Neither `allow` nor `deny` followed by one word, nor a preset.
            case unknownRule
            /// Neither a network, an address nor a host pattern.
            case invalidSubject
            /// An address with host bits set; contains the network that may be meant.
            case hostBits(IPNetwork)
            /// Both presets.
            case twoPresets
            /// More than `HTTPLimits.addressRules`.
            case tooManyRules
        }

        public let code: Code

        /// Number of the faulty line, from 1.
        public let line: Int

        /// Message for the user, with the remedy.
        public var description: String {
            switch code {
            case .unknownRule:
                "Line \(line): write allow or deny and a network or host pattern, or public-only, or all."
            case .invalidSubject:
                """
                Line \(line): write a network (10.0.0.0/8, 2001:db8::/32), an address, a host (example.org), the hosts \
                below one (*.example.org), or *.
                """
            case .hostBits(let network):
                "Line \(line): the address is inside a network; write \(network), or the address without a slash."
            case .twoPresets: "Line \(line): public-only and all exclude each other."
            case .tooManyRules: "Line \(line): there are more than \(HTTPLimits.addressRules) rules."
            }
        }
    }
}

extension AddressRule.Subject: CustomStringConvertible {
    /// Parses a network, an address or a host pattern.
    public init(_ word: String) throws(AddressPolicy.ParseError.Code) {
        do {
            self = .network(try IPNetwork(word))
        } catch {
            switch error {
            case .hostBits(let network): throw .hostBits(network)
            case .notANetwork:
                guard let pattern = HostPattern(word) else { throw .invalidSubject }
                self = .host(pattern)
            }
        }
    }

    /// Normalized text of the subject.
    public var description: String {
        switch self {
        case .network(let network): network.description
        case .host(let pattern): pattern.description
        }
    }
}
