"""The specs of jobs in the settings of other frameworks. Pure: rules compare them, the operator renders them."""
