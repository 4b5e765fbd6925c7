import Testing

/// Canaries of the layers of EarshotCore: each rule is given a violation, and permitted code.
@Suite struct LayerTests {
    private func file(_ text: String, at path: String) -> SourceFile {
        SourceFile(path: "Sources/EarshotCore/" + path, text: text)
    }

    private let folders: Set = ["Delivery", "Flights", "Workers", "Records", "Outcomes"]

    @Test(arguments: [
        "Flights.conclude(flight, in: &records)", "extension BrokerCore {", "let step: Flights.Step",
        "func end(_ core: inout BrokerCore)", "if isFull { return Workers.nextWorker(in: records) }",
    ])
    func `another mechanism in the folder of a mechanism is found`(line: String) {
        #expect(Layers.namedMechanisms(file(line, at: "Delivery/A.swift"), folders: folders).count == 1)
        // A folder without the form, and the composing type.
        #expect(Layers.namedMechanisms(file(line, at: "Queue/A.swift"), folders: folders) == [])
        #expect(Layers.namedMechanisms(file(line, at: "A.swift"), folders: folders) == [])
    }

    @Test func `own names, records and comments are permitted in a mechanism`() {
        let text = """
            extension Delivery {
                /// BrokerCore ends the flight. Flights do not know that.
                static func end(_ flight: Handle<Flight>, in records: inout Records) { records.flights.end(flight) }
                let outcome: Outcomes.Kind, action: Action.Workers
            }
            """
        #expect(Layers.namedMechanisms(file(text, at: "Delivery/A.swift"), folders: folders) == [])
    }

    @Test func `an extension outside the folder of its type is found`() {
        #expect(Layers.foreignExtensions(file("extension Records {", at: "Flights/A.swift")).count == 1)
        #expect(Layers.foreignExtensions(file("extension Records {", at: "A.swift")).count == 1)
        #expect(Layers.foreignExtensions(file("private extension Delivery {", at: "Records/A.swift")).count == 1)
        #expect(Layers.foreignExtensions(file("extension BrokerCore {", at: "Queue/A.swift")).count == 1)
        #expect(Layers.foreignExtensions(file("extension BrokerCore {", at: "A.swift")) == [])
        #expect(Layers.foreignExtensions(file("extension Records {", at: "Records/A.swift")) == [])
        #expect(Layers.foreignExtensions(file("extension Delivery {", at: "Delivery/A.swift")) == [])
        #expect(Layers.foreignExtensions(file("extension Delivery.EndedDelivery {", at: "A.swift")) == [])
    }

    @Test(arguments: [
        "mutating func expire(now: MonotonicTime) {", "func step(of flight: Handle<Flight>) -> FlightStep {",
        "mutating func lose(_ due: DueTerminal) -> Delivery.EndedDelivery {",
        "func refusal(of fetch: Fetch) -> RequestRefusal? {",
        "func end(_ core: inout BrokerCore) {", "mutating func expire(at time: MonotonicTime?) {",
        "mutating func end() { if end <= latestEventTime { drop() } }",
        "mutating func expire(\n    _ handler: Handle<Handler>,\n    at time: MonotonicTime\n) {",
    ])
    func `a rule in the records is found`(line: String) {
        #expect(Layers.rulesInRecords(file(line, at: "Records/A.swift")) != [])
        #expect(Layers.rulesInRecords(file(line, at: "Flights/A.swift")) == [])
    }

    @Test(arguments: [
        "/// What counts now.\nvar latestEventTime: MonotonicTime",
        "func end(of wait: Wait) -> MonotonicTime? { wait.end }",
        "mutating func setTimer(_ at: MonotonicTime, _ subject: CoreTimer.Subject) { timers.set(at, subject) }",
    ])
    func `times as data are permitted in the records`(text: String) {
        #expect(Layers.rulesInRecords(file(text, at: "Records/A.swift")) == [])
    }

    @Test(arguments: ["func long(_ a: Int = { 1 }()) -> Int", "init(_ a: Int)", "var long: Int"])
    func `a long function is found`(head: String) {
        func text(_ lines: Int) -> String {
            "struct A {\n    \(head) {\n" + String(repeating: "        use()\n", count: lines) + "    }\n}"
        }
        #expect(Layers.longFunctions(file(text(59), at: "Flights/A.swift")).count == 1)
        #expect(Layers.longFunctions(file(text(58), at: "Flights/A.swift")) == [])
        #expect(Layers.longFunctions(SourceFile(path: "Sources/EarshotWire/A.swift", text: text(59))) == [])
    }

    @Test func `a table of definitions may be long`() {
        let rows = String(repeating: "        case .a: 1\n", count: 70)
        let text = "enum A {\n    var definition: Int {\n        switch self {\n" + rows + "        }\n    }\n}"
        #expect(Layers.longFunctions(file(text, at: "Settings/A.swift")) == [])
    }

    @Test func `a cycle of four functions is found, in one type or across layers`() {
        func core(_ last: String) -> SourceFile {
            let text = """
                extension BrokerCore {
                    mutating func first() { second() }
                    mutating func second() { if true { self.third() } }
                    mutating func third() { forEach { core, flight in core.fourth(flight) } }
                    mutating func fourth(_ flight: Handle<Flight>) { \(last) }
                }
                """
            return file(text, at: "A.swift")
        }
        #expect(Layers.cycles(in: [core("first()")]).count == 1)
        #expect(Layers.cycles(in: [core("second()")]) == [])
        #expect(Layers.cycles(in: [core("// first()")]) == [])
        let text = "extension Delivery {\n    static func end(_ core: inout A) { core.first() }\n}"
        let delivery = file(text, at: "Delivery/B.swift")
        #expect(Layers.cycles(in: [core("Delivery.end(&self)"), delivery]).count == 1)
        #expect(Layers.cycles(in: [core("Delivery.begin(&self)"), delivery]) == [])
    }

    @Test(arguments: [
        ("end(flight)", 1), ("self.records.end(flight)", 0), ("end(flight, with: outcome)", 1),
        ("end(flight, at: time)", 0), ("end()", 0), ("records.end(flight)", 0), ("core.records.mark(flight)", 1),
        ("if isEnded { return }", 1),
        ("guard let isEnded: Bool = flag else { return }", 0), ("each { use($0) }", 1), ("each()", 0),
    ])
    func `a call names the functions of its type whose labels fit, in any file`(call: String, cycles: Int) {
        let first = """
            extension BrokerCore {
                mutating func first() { second() }
                mutating func second() { third() }
                mutating func third() { \(call) }
                func end() {}
                func each() {}
            }
            extension Records {
                func end(_ flight: Handle<Flight>) {}
                func mark(_ flight: Handle<Flight>) { core.first() }
            }
            """
        let second = """
            extension BrokerCore {
                mutating func end(_ flight: Handle<Flight>, with outcome: [String: (Int) -> Void] = [:]) { first() }
                mutating func each(_ body: (Int) -> Void) { first() }
                var isEnded: Bool {
                    first()
                }
            }
            """
        let files = [file(first, at: "A.swift"), file(second, at: "B.swift")]
        #expect(Layers.cycles(in: files).count == cycles)
    }
}
