public import ArgumentParser
public import EarshotWire
public import Logging

// How words on the command line become values. The imports are public because the types are.

extension Logger.Level: @retroactive ExpressibleByArgument {}

extension PriorityClass: ExpressibleByArgument {
    public init?(argument: String) { self.init(name: argument) }
    public var defaultValueDescription: String { name }
    public static var allValueStrings: [String] { allCases.map(\.name) }
}

extension RedirectMode: ExpressibleByArgument {}

extension HandlerID: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension HandlerPattern: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}

extension RequestID: ExpressibleByArgument {
    public init?(argument: String) { self.init(argument) }
}
