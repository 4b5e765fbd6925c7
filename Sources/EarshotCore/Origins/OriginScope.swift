package import EarshotHTTP

/// State of one origin for requests with the same credentials. A refusal of one such scope does not slow the others.
package struct OriginScope {
    package var origin: Handle<OriginEntry>
    package var scope: TrustScope
    /// Number of flights in this scope.
    package var flights = 0
    /// Whether the scope is kept only until its cool-down ends.
    var isResting = false
    /// nil while the origin accepts requests.
    package var coolDown: CoolDown?

    /// Whether a request may be taken from the queue, to start or to be refused. False while a probe runs.
    package var admits: Bool {
        switch coolDown?.phase {
        case nil, .due, .refusing: true
        case .cooling, .probing: false
        }
    }

    /// Whether a request taken from the queue fails.
    var isRefusing: Bool {
        if case .refusing = coolDown?.phase { true } else { false }
    }
}

/// Identity of an origin's scope.
struct OriginScopeKey: Hashable {
    var origin: Handle<OriginEntry>
    var scope: TrustScope
}
